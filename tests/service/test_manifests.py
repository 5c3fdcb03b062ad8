"""Manifests that lie in stores load, and are stored again as the same bytes."""

import json
from pathlib import Path
from typing import Any

import pytest

from ehr.canonical_json import to_json
from ehr.conditions import AskedCondition, AskedTarget
from ehr.errors import CorruptError
from ehr.formats.concepts import CodeConcepts, Concept
from ehr.labs import LabCurve
from ehr.vocabulary import Vocabulary
from model_store.blobs import FileStore, sha256_of
from model_store.cohorts import cohort_source
from model_store.manifests import CohortManifest, DatasetManifest, ModelManifest, vocabulary_in

CODES: dict[str, Any] = {
    "vocabulary": ["ICD9DX:25000", "LOINC:2345-7#D1"],
    "vocabulary_hash": "b04edabbe805ef351af85f09b3d436d48ef8a60cb5f3ebd35be5c252325c618e",
}
LIBRARIES = {"ehr-d3pm": "0.1.0", "python": "3.11.7", "torch": "2.9.0"}
DATASET = {
    "format": "ehr-d3pm dataset",
    "version": 1,
    **CODES,
    "concepts": {
        "ICD9DX:25000": {
            "source": {"concept_code": "250.00", "concept_id": 44833365, "vocabulary_id": "ICD9CM"},
            "standard": None,
        },
        "LOINC:2345-7": {
            "source": None,
            "standard": {"concept_code": "2345-7", "concept_id": 3004501, "name": "Glucose", "vocabulary_id": "LOINC"},
        },
    },
    "data_hash": "a1",
    "files": {"records.safetensors": "b2"},
    "holdout_share": 0.0,
    "lab_cut_points": {"LOINC:2345-7": [1.0, 2.5]},
    "may_be_attacked": False,
    "shown_counts": [None, 12],
    "summary": {"codes": 2, "records": None},
    "test_share": 0.1,
}
MODEL = {
    "format": "ehr-d3pm model",
    "version": 1,
    **CODES,
    "config": {"generator": "d3pm", "settings": {"timesteps": 50}},
    "costs": {"threads": 1},
    "curve": [{"epoch": 1, "loss": None}],
    "data_hash": "a1",
    "dataset_id": "ds_1",
    "files": {"weights.safetensors": "b2"},
    "holdout_share": 0.2,
    "libraries": LIBRARIES,
    "preset": None,
    "preset_reason": None,
    "seed": 3,
    "settings": {"dropout": 0.0, "width": 8},
    "test_share": 0.1,
}
COHORT = {
    "format": "ehr-d3pm cohort",
    "version": 1,
    **CODES,
    "dates": "none; formats that cannot be without have them synthesised from the record's number",
    "libraries": LIBRARIES,
    "model": {
        "data_hash": "a1",
        "dataset_id": "ds_1",
        "generator": "d3pm",
        "holdout_share": 0.2,
        "id": "mdl_1",
        "manifest_hash": "c3",
        "test_share": 0.1,
    },
    "parts": [
        {
            "blob": "cohorts/job/parts/p0.parquet",
            "bytes": 700,
            "first_record": 0,
            "n_records": 2,
            "number": 0,
            "sha256": "b2",
        }
    ],
    "request": {
        "conditions": {"all_of": ["ICD9DX:25000"], "any_of": [], "none_of": []},
        "evaluate": True,
        "method": "auto",
        "model_id": "mdl_1",
        "n": 2,
        "seed": 5,
        "steps": None,
        "strength": 1.0,
        "targets": [{"codes": ["LOINC:*"], "share": 0.3}],
    },
    "resolved": {"method": "exact", "steps": 12},
    "warnings": ["few"],
}
CURVES = {
    "lab_curves": {
        "LOINC:2345-7": {
            "cuts": [1.0, 2.5],
            "decimals": 1,
            "knots": [[], [1.0, 2.0, 2.5], [2.5, 4.0]],
            "shares": [[], [0.75, 0.25], [1.0]],
            "unit": {
                "code": "mg/dL",
                "concept_id": None,
                "name": "",
                "system": "http://unitsofmeasure.org",
                "text": "mg/dL",
            },
        }
    }
}
LOADS = {
    "dataset": (DATASET, DatasetManifest.read),
    "dataset with curves": (DATASET | CURVES, DatasetManifest.read),
    "model": (MODEL, ModelManifest.read),
    "model with curves": (MODEL | CURVES, ModelManifest.read),
    "cohort": (COHORT, CohortManifest.read),
    "cohort with curves": (COHORT | CURVES, CohortManifest.read),
}


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(f"file://{tmp_path}")


@pytest.mark.parametrize("more", [{}, {"of_a_later_version": [1, 2.0, None]}], ids=["known", "with an unknown key"])
@pytest.mark.parametrize("kind", LOADS)
def test_what_was_stored_is_stored_again_byte_for_byte(store: FileStore, kind: str, more: dict[str, Any]) -> None:
    written, load = LOADS[kind]
    data = json.dumps(written | more, sort_keys=True, ensure_ascii=True, allow_nan=False, indent=1).encode()
    store.write("x/manifest.json", data)
    manifest: Any = load(store, "x", sha256_of(store, "x/manifest.json"))
    assert to_json(manifest.stored()) == data
    assert vocabulary_in(manifest).codes == ("ICD9DX:25000", "LOINC:2345-7#D1")


def test_keys_that_were_never_stored_stay_away() -> None:
    later = ("may_be_attacked", "lab_cut_points", "concepts")
    early = {name: value for name, value in DATASET.items() if name not in later}
    manifest = DatasetManifest.model_validate(early)
    assert manifest.may_be_attacked and manifest.lab_cut_points == {} and manifest.concepts == {}
    assert to_json(manifest.stored()) == to_json(early)


def test_names_of_codes_are_kept_beside_the_vocabulary() -> None:
    names = {"ICD9DX:25000": "Diabetes", "LOINC:2345-7": "Glucose"}
    manifest = ModelManifest.of(Vocabulary(tuple(CODES["vocabulary"]), names), config={}, libraries={})
    assert manifest.stored()["names"] == names and manifest.vocabulary_hash == CODES["vocabulary_hash"]
    kept = vocabulary_in(manifest)
    assert [kept.name_of(code) for code in kept.codes] == ["Diabetes", "Glucose, decile 1"]
    early = vocabulary_in(ModelManifest.model_validate(MODEL))  # of a version that kept none: the tables still know
    assert str(early.name_of("ICD9DX:25000")).startswith("Diabetes mellitus")


def test_what_manifests_say() -> None:
    assert DatasetManifest.model_validate(DATASET).concepts == {
        "ICD9DX:25000": CodeConcepts(Concept(44833365, "ICD9CM", "250.00")),
        "LOINC:2345-7": CodeConcepts(None, Concept(3004501, "LOINC", "2345-7", "Glucose")),
    }
    assert ModelManifest.model_validate(MODEL).holdout_share == 0.2
    cohort = CohortManifest.model_validate(COHORT)
    assert cohort.condition == AskedCondition(all_of=["ICD9DX:25000"])
    assert cohort.targets == [AskedTarget(codes=["LOINC:*"], share=0.3)]
    assert cohort.model.data_hash == "a1" and cohort.parts[0].n_records == 2


def test_numbers_of_labs_come_from_the_cohort_or_else_from_its_dataset(store: FileStore) -> None:
    """A cohort from before there were curves has what its dataset's cut points say, as long as that is there."""
    old, new = (CohortManifest.model_validate(COHORT | more) for more in ({}, CURVES))
    dataset = DatasetManifest.model_validate(DATASET)
    lab = "LOINC:2345-7"
    assert cohort_source(store, old).lab_curves == {}
    assert cohort_source(store, old, dataset).lab_curves == {lab: LabCurve.between((1.0, 2.5))}
    for source in (cohort_source(store, new, dataset), cohort_source(store, new)):
        assert source.lab_curves[lab].knots == ((), (1.0, 2.0, 2.5), (2.5, 4.0))
        assert source.manifest["lab_cut_points"] == {lab: (1.0, 2.5)} and source.seed == 5


def test_codes_that_are_not_those_of_their_hash_are_refused() -> None:
    with pytest.raises(CorruptError, match="hash"):
        vocabulary_in(ModelManifest.model_validate(MODEL | {"vocabulary": ["ICD9DX:25000"]}))
