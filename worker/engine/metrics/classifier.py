"""Predict one code from all others with LightGBM: what the utility metrics are measured with."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from ehr.errors import TrainingError
from ehr.records import Records

TREES = 1000
SMALLEST_LEAF = 20  # LightGBM's default
SETTINGS = {
    "objective": "binary",
    "learning_rate": 0.05,
    "max_depth": 10,
    "lambda_l1": 0.5,  # reg_alpha
    "lambda_l2": 0.5,  # reg_lambda
    "scale_pos_weight": 1,
    "min_data_in_bin": 128,
    "min_data_in_leaf": SMALLEST_LEAF,
    "verbosity": -1,
    "num_threads": 1,
    # Neither changes the trees. Row-wise histograms visit the codes that are there; LightGBM would find that out by a
    # trial at the start of each of some thirty trainings.
    "force_row_wise": True,
    "deterministic": True,
}


class ClassifierError(TrainingError):
    """LightGBM cannot be used on this machine."""


@dataclass(frozen=True)
class Label:
    """What is predicted: whether a record has one of `codes`, which are no features then."""

    name: str
    codes: tuple[int, ...]
    meaning: str | None = None  # what a code is called that is its name

    @property
    def words(self) -> str:
        """For sentences."""
        return self.name if self.meaning is None else f"{self.name} ({self.meaning})"

    def of(self, records: Records) -> NDArray[np.bool_]:
        """Which records have it, (R,)."""
        has = np.zeros(len(records), dtype=bool)
        for code in self.codes:
            has[records.having(code)] = True
        return has


@dataclass(frozen=True)
class Classifier:
    """A trained classifier and the codes it looks at."""

    features: NDArray[np.int64]
    booster: Any

    @classmethod
    def trained(cls, train: Records, label: Label, trees: int = TREES) -> "Classifier":
        lightgbm = _lightgbm()
        features = np.setdiff1d(usable_codes(train), label.codes)
        data = lightgbm.Dataset(_matrix(train, features), label.of(train).astype(np.float32), free_raw_data=True)
        return cls(features, lightgbm.train(SETTINGS, data, num_boost_round=trees))

    def scores(self, records: Records) -> NDArray[np.float64]:
        """How likely each record has the label, (R,)."""
        return np.asarray(self.booster.predict(_matrix(records, self.features), num_threads=1))

    def weights(self) -> list[tuple[int, float]]:
        """(code, its share of all that the classifier tells by), the weightiest first."""
        gain = np.asarray(self.booster.feature_importance("gain"), dtype=np.float64)
        order = np.argsort(-gain, kind="stable")
        return [(int(self.features[i]), float(gain[i] / gain.sum())) for i in order if gain[i] > 0]


def trained_scores(train: Records, test: Records, label: Label, trees: int = TREES) -> NDArray[np.float64]:
    """Train on `train`; the scores of the test records, (R,)."""
    return Classifier.trained(train, label, trees).scores(test)


def usable_codes(train: Records) -> NDArray[np.int64]:
    """The codes that enough training records have for a leaf of their own. LightGBM would drop the others itself, with
    the same trees, after carrying them through every matrix."""
    return np.flatnonzero(train.counts() >= SMALLEST_LEAF)


def _lightgbm() -> Any:
    try:
        import lightgbm
    except OSError as error:  # the wheel needs the system's OpenMP
        raise ClassifierError("LightGBM needs the library libgomp.so.1 (Debian: libgomp1)") from error
    return lightgbm


def _matrix(records: Records, features: Sequence[int] | NDArray[np.int64]) -> csr_matrix:
    return csr_matrix(records.to_csr(np.float32)[:, features])  # LightGBM warns about SciPy's arrays
