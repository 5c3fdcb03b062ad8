"""Generators from the literature, to compare with. A new one is a file here, a line below and its settings in
ehr/generators/baselines.py."""

from worker.engine.generators.baselines.base import Baseline
from worker.engine.generators.baselines.ehrdiff import EHRDiff
from worker.engine.generators.baselines.emr_wgan import EmrWgan
from worker.engine.generators.baselines.med_wgan import MedWgan
from worker.engine.generators.baselines.tabddpm import TabDDPM
from worker.engine.generators.baselines.tabsyn import TabSyn

__all__ = ["BASELINES", "Baseline"]

BASELINES: tuple[type[Baseline], ...] = (
    MedWgan,
    EmrWgan,
    TabDDPM,
    EHRDiff,
    TabSyn,
)
