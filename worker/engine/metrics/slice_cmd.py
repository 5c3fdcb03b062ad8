"""`cmd` inside the slice: do codes go together as in real patients who meet the condition?"""

from ehr.disclosure import Discloses
from worker.engine.metrics import cmd
from worker.engine.metrics.measurement import SliceMetric, Words
from worker.engine.metrics.verdicts import between_yardsticks

SLICE_CMD = SliceMetric(
    name="slice_cmd",
    title="Links between codes",
    discloses=Discloses.AGGREGATE,
    direction="lower",
    bounds=cmd.BOUNDS,
    meaning="How far the links between codes differ between synthetic and real patients who meet the condition.",
    rule=between_yardsticks("lower", good_within=0.5, fail_beyond=4.0, worse="unconditional", needs_contrast=True),
    words=Words(
        good="Among patients with the condition, the way codes occur together is much closer to real ones than to "
        "ordinary patients.",
        caution="Among patients with the condition, some links between codes are weaker or different.",
        fail="Among patients with the condition, codes occur together no more realistically than in ordinary patients.",
        unsure="There are too few patients with the condition to tell whether codes occur together realistically.",
        advice="Do not study combinations of codes within this condition on this cohort.",
    ),
    measure=cmd.measure,
)
