"""Train on synthetic, test on real: what a classifier loses when it never sees a patient."""

from collections.abc import Callable
from dataclasses import dataclass

import lightgbm
import numpy as np
from scipy.sparse import csr_array
from sklearn.metrics import average_precision_score, roc_auc_score

from worker.engine.records import Records

# The six of the paper, as ICD-9 codes.
DISEASES = {
    "diabetes": "ICD9DX:250",
    "chronic kidney disease": "ICD9DX:585",
    "COPD": "ICD9DX:496",
    "asthma": "ICD9DX:493",
    "hypertensive heart disease": "ICD9DX:402",
    "osteoarthritis": "ICD9DX:715",
}


@dataclass(frozen=True)
class Utility:
    """One disease predicted from all other codes, by a classifier trained on real and one on synthetic records."""

    name: str
    real_auroc: float
    synth_auroc: float
    real_auprc: float
    synth_auprc: float

    @property
    def gap(self) -> float:
        return self.real_auroc - self.synth_auroc


def utility_gaps(
    synth: Records, real: Records, test: Records, codes: dict[str, int], progress: Callable[[int, int], None]
) -> list[Utility]:
    """Both classifiers for each disease, scored on the same test records."""
    outcomes = []
    for number, (name, code) in enumerate(codes.items(), start=1):
        (real_auroc, real_auprc), (auroc, auprc) = (_scores(part, test, code) for part in (real, synth))
        outcomes.append(Utility(name, real_auroc, auroc, real_auprc, auprc))
        progress(number, len(codes))
    return outcomes


def _scores(train: Records, test: Records, code: int) -> tuple[float, float]:
    classifier = lightgbm.LGBMClassifier(
        n_estimators=1000,
        learning_rate=0.05,
        max_depth=10,
        reg_alpha=0.5,
        reg_lambda=0.5,
        scale_pos_weight=1,
        min_data_in_bin=128,
        verbose=-1,
        random_state=0,
    )
    (x, y), (x_test, y_test) = (_split(part, code) for part in (train, test))
    if min(y.sum(), y_test.sum()) == 0:
        return float("nan"), float("nan")
    classifier.fit(x, y)
    scores = np.asarray(classifier.predict_proba(x_test))[:, 1]
    return float(roc_auc_score(y_test, scores)), float(average_precision_score(y_test, scores))


def _split(records: Records, code: int) -> tuple[csr_array, np.ndarray]:
    x = records.to_csr(np.float32).tocsc()
    return x[:, np.arange(records.n_codes) != code].tocsr(), x[:, [code]].toarray()[:, 0]
