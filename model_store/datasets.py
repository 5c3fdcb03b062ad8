"""Datasets at rest: CSR arrays, one position for each record that decides its split, the vocabulary and a summary.

A record's position is its patient's rank in a random order, as a share from 0 to 1. The test split is the lowest
positions, the holdout split comes next, the rest is for training. So splits are made once, at ingestion; no patient is
on two sides; and another holdout share moves the border between holdout and training alone.

The records of patients over time are their visits, in order; offsets, gaps and static codes lie beside them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ehr.disclosure import SMALLEST_SHOWN, shown, shown_parts
from ehr.errors import DataError
from ehr.formats.cdm import SourceCdm
from ehr.groups import Groups
from ehr.histories import Histories
from ehr.labs import LabCurve
from ehr.records import Records
from ehr.rules import Rules
from ehr.streams import RecordStream
from ehr.vocabulary import Vocabulary
from model_store.arrays import arrays_of, histories_in, time_arrays
from model_store.blobs import BlobStore
from model_store.files import CDM, hash_arrays, pack_arrays, read_file, unpack_arrays, write_folder
from model_store.manifests import DatasetManifest, vocabulary_in
from model_store.record_files import ArrayFile

RECORDS = "records.safetensors"
SPLITS = ("train", "holdout", "test")
QUANTILES = (5, 25, 50, 75, 95)


@dataclass(frozen=True)
class StoredDataset:
    """All of a dataset in memory."""

    records: Records
    position: NDArray[np.float32]  # (R,), from 0 to 1
    vocabulary: Vocabulary
    test_share: float
    holdout_share: float
    data_hash: str
    may_be_attacked: bool = True  # False: its terms forbid experiments in re-identification
    groups: Groups | None = None  # codes of which one holds; None where there are none
    rules: Rules | None = None  # pairs of codes that no record has; None where there are none
    lab_curves: Mapping[str, LabCurve] = field(default_factory=dict)  # of labs that became deciles
    histories: Histories | None = None  # whose visits are `records`; None where records are by themselves
    # (start, stop) -> those of the records' indices, from where they are stored; None: they are in memory
    read: Callable[[int, int], NDArray[np.int32]] | None = None

    def split_histories(
        self, name: str, holdout_share: float | None = None, test_share: float | None = None
    ) -> Histories:
        """The patients of `train`, `holdout` or `test` with all their visits; DataError if there is no time."""
        if self.histories is None:
            raise DataError("the dataset has records without time; upload it with unit=history")
        test = self.test_share if test_share is None else test_share
        holdout = self.holdout_share if holdout_share is None else holdout_share
        split = split_of(self.position[self.histories.offsets[:-1]], test, holdout)
        return self.histories.take(np.flatnonzero(split == SPLITS.index(name)))

    def split(self, name: str, holdout_share: float | None = None, test_share: float | None = None) -> Records:
        """The records of `train`, `holdout` or `test`, by the dataset's own shares or by those of a model."""
        test = self.test_share if test_share is None else test_share
        holdout = self.holdout_share if holdout_share is None else holdout_share
        return self.records.take(np.flatnonzero(split_of(self.position, test, holdout) == SPLITS.index(name)))

    def to_learn_from(self, holdout_share: float | None = None) -> Records | RecordStream:
        """The records of `train`, as a stream if they are not in memory."""
        if self.read is None:
            return self.split("train", holdout_share)
        holdout = self.holdout_share if holdout_share is None else holdout_share
        rows = np.flatnonzero(split_of(self.position, self.test_share, holdout) == SPLITS.index("train"))
        return RecordStream(self.records.indptr, self.read, self.records.n_codes, rows.astype(np.int32))


def split_of(position: NDArray[np.float32], test_share: float, holdout_share: float) -> NDArray[np.int64]:
    """Index into SPLITS for each record."""
    split = np.zeros(len(position), dtype=np.int64)
    split[position < test_share + holdout_share] = 1
    split[position < test_share] = 2
    return split


def positions(patients: NDArray[np.int64], n_patients: int, seed: int = 0) -> NDArray[np.float32]:
    """A random position for each record, the same for all records of a patient."""
    rank = np.random.default_rng(seed).permutation(n_patients)
    return ((rank + 0.5) / max(n_patients, 1)).astype(np.float32)[patients]


def summarise(records: Records, vocabulary: Vocabulary, split: NDArray[np.int64], n_patients: int) -> dict[str, Any]:
    """What may be shown of a dataset. The mean takes a count that is not shown for the middle of those it may be: with
    the count itself it would be a total from which that could be solved for."""
    n = len(records)
    counts = shown_counts(records)
    sizes = np.diff(records.indptr)
    return {
        "records": shown(n),
        "patients": shown(n_patients),
        "codes": len(vocabulary),
        "codes_per_record": round(sum(_told(records, counts)) / max(n, 1), 2),
        "codes_per_record_quantiles": {f"p{q}": int(np.percentile(sizes, q)) for q in QUANTILES} if n else {},
        "splits": shown_parts({name: int((split == i).sum()) for i, name in enumerate(SPLITS)}),
        "small_cells": "counts of 1 to 10 patients are not shown",
    }


def _told(records: Records, counts: list[int | None]) -> Iterator[float]:
    """The shown counts, and for each that is not the middle of 1 to 10, or as far below the number of records."""
    middle, n = SMALLEST_SHOWN / 2, len(records)
    for count, real in zip(counts, records.counts(), strict=True):
        yield min(middle if 2 * real <= n else n - middle, n) if count is None else count


def summarise_histories(histories: Histories, vocabulary: Vocabulary, split: NDArray[np.int64]) -> dict[str, Any]:
    """The same for patients over time, each of whom is a record; `split` is theirs."""
    gaps = np.delete(histories.gaps, histories.offsets[:-1])
    figures: dict[str, NDArray[Any]] = {
        "visits_per_patient_quantiles": histories.visit_counts(),
        "codes_per_visit_quantiles": histories.visits.sizes(),
        "gap_days_quantiles": gaps,
    }
    return {
        **summarise(histories.ever(), vocabulary, split, len(histories)),
        "visits": shown(len(histories.visits)),
        **{name: {f"p{q}": int(np.percentile(of, q)) for q in QUANTILES} for name, of in figures.items() if len(of)},
    }


def shown_counts(records: Records) -> list[int | None]:
    """In how many records each code is; None where that may not be shown."""
    counts = records.counts()
    return [shown(int(count), len(records)) for count in counts]


def save_dataset(
    store: BlobStore,
    folder: str,
    dataset: StoredDataset,
    summary: dict[str, Any],
    cdm: SourceCdm | None = None,
    **details: Any,
) -> str:
    """Write a dataset; returns the sha256 of its manifest. `cdm`: how the records stood in the CDM they came from;
    `details`: the `concepts` of codes."""
    manifest = DatasetManifest.of(
        dataset.vocabulary,
        data_hash=dataset.data_hash,
        test_share=dataset.test_share,
        holdout_share=dataset.holdout_share,
        may_be_attacked=dataset.may_be_attacked,
        shown_counts=shown_counts(dataset.records if dataset.histories is None else dataset.histories.ever()),
        summary=summary,
        lab_cut_points={lab: curve.cuts for lab, curve in dataset.lab_curves.items()},
        **({"lab_curves": dataset.lab_curves} if dataset.lab_curves else {}),
        **({} if dataset.groups is None else {"groups": dataset.groups.as_json(dataset.vocabulary.codes)}),
        **({} if dataset.rules is None else {"rules": dataset.rules.as_json()}),
        **details,
    )
    files = {RECORDS: pack_arrays(_arrays(dataset.records, dataset.position, dataset.histories))}
    return write_folder(store, folder, files | ({} if cdm is None else {CDM: cdm.to_json()}), manifest.stored())


def data_hash(records: Records, position: NDArray[np.float32], histories: Histories | None = None) -> str:
    """What identifies the data a model has seen."""
    return hash_arrays(_arrays(records, position, histories))


def load_dataset(store: BlobStore, folder: str, manifest_hash: str, most_bytes: int | None = None) -> StoredDataset:
    """The dataset, if every byte is as it was written; CorruptError otherwise. If its records take more than
    `most_bytes`, their codes stay in the file."""
    manifest = DatasetManifest.read(store, folder, manifest_hash)
    arrays, read = _stored_arrays(store, folder, manifest, most_bytes)
    vocabulary = vocabulary_in(manifest)
    records = Records(arrays["indptr"], arrays["indices"], len(vocabulary))
    groups = Groups.from_json(manifest.groups, manifest.vocabulary)
    return StoredDataset(
        records,
        arrays["position"],
        vocabulary,
        manifest.test_share,
        manifest.holdout_share,
        manifest.data_hash,
        manifest.may_be_attacked,
        groups if manifest.groups else None,
        Rules.from_json(manifest.rules, groups) if manifest.rules else None,
        manifest.curves,
        histories_in(records, arrays),
        read,
    )


def _stored_arrays(
    store: BlobStore, folder: str, manifest: DatasetManifest, most_bytes: int | None
) -> tuple[Mapping[str, NDArray[Any]], Callable[[int, int], NDArray[np.int32]] | None]:
    key = f"{folder}/{RECORDS}"
    sizes = {entry.key: entry.size for entry in store.entries(folder)} if most_bytes is not None else {}
    if most_bytes is None or sizes.get(key, 0) <= most_bytes or RECORDS not in manifest.files:
        return unpack_arrays(read_file(store, folder, manifest.files, RECORDS)), None
    file = ArrayFile.of(store, key, manifest.files[RECORDS])
    arrays = {name: file.mapped(name) if name == "indices" else file.whole(name) for name in file.places}
    return arrays, None if "offsets" in file else file.reader("indices")


def _arrays(
    records: Records, position: NDArray[np.float32], histories: Histories | None = None
) -> dict[str, NDArray[Any]]:
    arrays = arrays_of(records) | {"position": position}
    return arrays if histories is None else arrays | time_arrays(histories)
