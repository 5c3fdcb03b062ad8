"""Do two checkouts of the project give the same bytes? Run before and after a change that should not be seen.

Starts the whole service of the other checkout and then of this one, in the environment that runs this, and asks both
the same things over HTTP: uploads, models of every generator, cohorts under conditions, targets and methods, every
format, estimates and reports. What comes back is compared by its hash; ids, measured times and sentences for people are
left out.

    git worktree add /tmp/other main && python -m benchmarks.same_bytes --other /tmp/other
"""

import csv
import hashlib
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks._harness import Figures, console, options, progress_bar, show
from worker.engine.population import simulated_population

HERE = Path(__file__).parents[1]
SMALL_D3PM = {"training": {"epochs": 2, "batch_size": 128}, "denoiser": {"kind": "sparse", "width": 32, "blocks": 1}}
LINFORMER = {"kind": "linformer", "width": 16, "layers": 1, "heads": 2, "projection": 8}
# name -> body of POST /train beside its dataset
MODELS: dict[str, dict[str, Any]] = {
    "absorbing": {"preset": "fast", "settings": SMALL_D3PM, "seed": 3},
    "marginal": {"preset": "fast", "settings": SMALL_D3PM | {"noise": "marginal", "timesteps": 20}},
    "uniform-linformer": {
        "preset": "paper-mimic",
        "settings": {"timesteps": 8, "denoiser": LINFORMER, "training": {"epochs": 1, "batch_size": 256}},
    },
    "independent": {"generator": "independent"},
    "med-wgan": {"generator": "med-wgan", "settings": {"epochs": 4, "batch_size": 200}},
    "emr-wgan": {"generator": "emr-wgan", "settings": {"epochs": 4, "batch_size": 200, "width": 32, "layers": 2}},
    "tabddpm": {"generator": "tabddpm", "settings": {"epochs": 2, "timesteps": 10, "layers": [32, 32]}},
    "ehrdiff": {"generator": "ehrdiff", "settings": {"epochs": 2, "layers": [32, 16, 32], "sampling_steps": 4}},
    "tabsyn": {
        "generator": "tabsyn",
        "settings": {"epochs": 4, "batch_size": 256, "width": 32, "factor": 2, "sampling_steps": 4},
    },
}
COMMON, OTHER, RARE = "ICD10CM:I10", "ICD10CM:E11", "ICD10CM:I50"
# (model, name, body of POST /generate beside its model)
COHORTS: list[tuple[str, str, dict[str, Any]]] = [
    ("absorbing", "unconditional", {"seed": 1, "evaluate": True}),
    ("absorbing", "all_of", {"conditions": {"all_of": [COMMON]}, "seed": 2, "evaluate": True}),
    ("absorbing", "rare", {"conditions": {"all_of": [RARE]}, "seed": 2}),
    ("absorbing", "any_of", {"conditions": {"any_of": [[COMMON, OTHER], ["SEX:*"]]}, "seed": 3}),
    ("absorbing", "none_of", {"conditions": {"all_of": ["ICD10CM:E*"], "none_of": ["SEX:F"]}, "steps": 5}),
    ("absorbing", "targets", {"targets": [{"codes": [OTHER], "share": 0.3}], "conditions": {"all_of": [COMMON]}}),
    ("absorbing", "langevin", {"conditions": {"all_of": [OTHER]}, "method": "langevin", "strength": 2.0, "steps": 8}),
    ("marginal", "unconditional", {"seed": 5}),
    ("marginal", "exact", {"conditions": {"all_of": [COMMON]}, "seed": 5}),
    ("uniform-linformer", "langevin", {"conditions": {"all_of": [COMMON]}, "method": "langevin"}),
    ("independent", "targets", {"targets": [{"codes": [COMMON], "share": 0.5}], "evaluate": True}),
    *((name, "unconditional", {"seed": 6}) for name in ("med-wgan", "emr-wgan", "tabddpm", "ehrdiff", "tabsyn")),
    ("tabddpm", "rejection", {"conditions": {"any_of": ["SEX:M"]}, "seed": 6}),
]
QUICK = ("absorbing", "independent")
# Left out: what is measured anew by every run (a model's manifest holds its costs, so its hash is of a run too) ...
MEASURED = {"manifest_hash", "seconds", "costs", "memory_gib", "created_at", "started_at", "finished_at", "workers"}
# ... and sentences for people, which may be put in better words
SENTENCES = {"title", "meaning", "reason", "advice", "absent", "against", "note", "description", "small_cells"}
ID = re.compile(r"\b(ds|mdl|job|up)_[0-9a-f]{32}\b")


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument(
        "--other", type=Path, default=HERE, metavar="DIR", help="the checkout to compare with; this one"
    )
    parser.add_argument(
        "--upload", type=Path, action="append", default=[], metavar="DIR", help="real files to read too"
    )
    arguments = parser.parse_args()
    models = {name: body for name, body in MODELS.items() if not arguments.quick or name in QUICK}
    found: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        upload = Path(folder) / "records.csv"
        upload.write_text(_long_table(2_000))
        for name, checkout in (("other", arguments.other.resolve()), ("this", HERE)):
            with served(checkout, Path(folder) / name) as client, progress_bar(f"{name}: {checkout}") as advance:
                found[name] = dict(results(client, upload, arguments.upload, models, advance))
    report(found["other"], found["this"], arguments.json)


def report(other: dict[str, str], this: dict[str, str], json_file: Path | None) -> None:
    """What differs, what only one has, and how much was compared."""
    shared = sorted(other.keys() & this.keys())
    different = [name for name in shared if other[name] != this[name]]
    alone = sorted(other.keys() ^ this.keys())
    if different or alone:
        rows = [[name, other.get(name, "-")[:16], this.get(name, "-")[:16]] for name in [*different, *alone]]
        show("what differs", ["result", "other", "this"], rows)
    figures = Figures()
    figures.add("same_bytes.compared", len(shared), "results")
    figures.add("same_bytes.different", len(different) + len(alone), "results")
    figures.finish(json_file)
    sys.exit(bool(different or alone))


def results(
    client: "Asking", upload: Path, folders: list[Path], models: dict[str, dict[str, Any]], advance: Any
) -> Iterator[tuple[str, str]]:
    """(name, hash) of everything that is compared."""
    cohorts = [cohort for cohort in COHORTS if cohort[0] in models]
    done, total = 0, 1 + len(models) + len(cohorts) + len(folders)
    dataset = client.upload([upload], min_records=40)
    yield from client.described("dataset", f"/datasets/{dataset}", f"/datasets/{dataset}/codes?limit=100")
    for folder in folders:
        real = client.upload(sorted(path for path in folder.iterdir() if path.suffix in (".csv", ".gz")))
        yield from client.described(folder.name, f"/datasets/{real}", f"/datasets/{real}/codes?limit=100")
    trained: dict[str, str] = {}
    for name, body in models.items():
        trained[name] = client.job("/train", body | {"dataset_id": dataset})["result"]["model_id"]
        bundle = zipfile.ZipFile(io.BytesIO(client.get(f"/models/{trained[name]}/bundle").content))
        yield f"{name}/weights", _hash(bundle.read("weights.safetensors"))
        yield f"{name}/manifest", _hash_of_json(json.loads(bundle.read("manifest.json")))
        advance(done := done + 1, total)
    for model, name, body in cohorts:
        label = f"{model}/{name}"
        request = {"evaluate": False} | body | {"model_id": trained[model], "n": 1_500}
        yield f"{label}/estimate", _hash_of_json(client.post("/generate/estimate", request))
        cohort = client.job("/generate", request)["id"]
        if body.get("evaluate"):
            yield f"{label}/report", _hash_of_json(client.report(cohort))
            client.http.post(f"/cohorts/{cohort}/release", json={"reason": "compared on this machine only"})
        formats = client.get(f"/cohorts/{cohort}").json()["formats"]
        for form, path in formats.items():
            yield f"{label}/{form}", _hash(client.get(path).content)
        advance(done := done + 1, total)


class Asking:
    """The service over HTTP, as a script would ask it."""

    def __init__(self, base: str) -> None:
        self.http = httpx.Client(base_url=base, timeout=120)

    def get(self, path: str) -> httpx.Response:
        return self.http.get(path).raise_for_status()

    def post(self, path: str, body: dict[str, Any]) -> Any:
        return self.http.post(path, json=body).raise_for_status().json()

    def job(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._wait(self.post(path, body)["id"])

    def upload(self, paths: list[Path], **fields: Any) -> str:
        files = [("file", (path.name, path.read_bytes())) for path in paths]
        answer = self.http.post("/datasets", files=files, data=fields).raise_for_status().json()
        return str(self._wait(answer["id"])["result"]["dataset_id"])

    def described(self, name: str, *paths: str) -> Iterator[tuple[str, str]]:
        for path in paths:
            yield f"{name}/{ID.sub('ID', path)}", _hash_of_json(self.get(path).json())

    def report(self, cohort: str) -> Any:
        """The report that an evaluation of its own makes once the cohort is there."""
        for _ in range(1_200):
            answer = self.http.get(f"/reports/{cohort}")
            if answer.status_code == 200:
                return answer.json()
            time.sleep(0.5)
        raise TimeoutError(f"no report on {cohort}")

    def _wait(self, job_id: str) -> dict[str, Any]:
        while True:
            job: dict[str, Any] = self.get(f"/jobs/{job_id}").json()
            if job["state"] not in ("queued", "running"):
                if job["state"] != "succeeded":
                    raise RuntimeError(f"{job['kind']} ended as {job['state']}: {job['error']}")
                return job
            time.sleep(0.2)


@contextmanager
def served(checkout: Path, data: Path) -> Iterator[Asking]:
    """The service of a checkout, with its own folder for everything that lasts."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    module = "ehr_d3pm" if (checkout / "client").is_dir() else "app.cli"
    paths = os.pathsep.join([str(checkout), str(checkout / "client")])
    environment = os.environ | {"PYTHONPATH": paths, "DATA_DIR": str(data), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", module, "serve", "--port", str(port)]
    with (data.parent / f"{data.name}.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=checkout, env=environment, stdout=log, stderr=log)
    try:
        base = f"http://127.0.0.1:{port}"
        for _ in range(300):
            try:
                httpx.get(f"{base}/readyz").raise_for_status()
                break
            except httpx.HTTPError:
                time.sleep(0.2)
        else:
            raise TimeoutError(f"the service of {checkout} did not start")
        console.print(f"serving {checkout}")
        yield Asking(base)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def _long_table(n: int) -> str:
    population = simulated_population()
    records = population.sample(n, np.random.default_rng(11))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["record_id", "code"])
    for row in range(n):
        for code in records.indices[records.indptr[row] : records.indptr[row + 1]]:
            writer.writerow([f"p{row}", population.vocabulary[code]])
    return text.getvalue()


def _hash(data: bytes) -> str:
    """Of a file; of a zip file, of what is in it, since a page about its origin in it names ids."""
    if data[:4] == b"PK\x03\x04":
        archive = zipfile.ZipFile(io.BytesIO(data))
        members = [
            _hash_of_json(json.loads(archive.read(name))) if name.endswith(".json") else _hash(archive.read(name))
            for name in archive.namelist()
        ]
        data = "\n".join([*archive.namelist(), *members]).encode()
    return hashlib.sha256(data).hexdigest()


def _hash_of_json(value: Any) -> str:
    return _hash(ID.sub("ID", json.dumps(_without_measured(value), sort_keys=True)).encode())


def _without_measured(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_measured(item) for name, item in value.items() if name not in MEASURED | SENTENCES}
    return [_without_measured(item) for item in value] if isinstance(value, list) else value


if __name__ == "__main__":
    main()
