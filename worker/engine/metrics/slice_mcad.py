"""`mcad` inside the slice: have synthetic patients with the condition as many codes as real ones?"""

from ehr.disclosure import Discloses
from worker.engine.metrics import mcad
from worker.engine.metrics.measurement import SliceMetric, Words
from worker.engine.metrics.verdicts import between_yardsticks

SLICE_MCAD = SliceMetric(
    name="slice_mcad",
    title="Codes per record",
    discloses=Discloses.SHARE_OF_PATIENTS,
    direction="lower",
    bounds=mcad.BOUNDS,
    meaning="The share of synthetic patients with the condition who would need another number of codes to match real "
    "ones.",
    rule=between_yardsticks("lower", good_within=0.03, fail_beyond=0.25, worse="unconditional"),
    words=Words(
        good="Synthetic patients with the condition have as many codes as real ones.",
        caution="Some synthetic patients with the condition have too many or too few codes.",
        fail="The number of codes is wrong for many synthetic patients with the condition.",
        unsure="There are too few patients with the condition to tell whether they have as many codes as real ones.",
        advice="Do not use the cohort for burden of disease within this condition.",
    ),
    measure=mcad.measure,
)
