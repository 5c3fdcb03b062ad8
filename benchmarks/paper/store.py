"""What a run of the paper's tables leaves behind: finished cells as JSON, models as safetensors, cohorts as npz."""

import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load_file, save_file

from ehr.records import Records
from worker.engine.generators import Generator, State, from_state

Cell = dict[str, Any]  # plain JSON; {"absent": reason} is a finished cell too


@dataclass(frozen=True)
class Task:
    """How a cell comes about. `kind` tells what it costs, `about` the generators it is of."""

    name: str
    run: Callable[[], Cell]
    kind: str
    about: str = ""
    needs: tuple[str, ...] = ()
    beside_others: bool = False  # uses one core, so that several can run at a time

    def asked_for(self, only: Sequence[str] | None) -> bool:
        """Whether it is of one of these kinds or generators."""
        return only is None or self.kind in only or self.about in only


@dataclass(frozen=True)
class Store:
    """A folder for one data set, budget and seed. A file has its name only when it is complete."""

    folder: Path

    @classmethod
    def of(cls, work: Path, data: str, minutes: float, seed: int, quick: bool) -> "Store":
        """The folder of this run; another data set, budget or seed has another."""
        return cls(work / f"{slug(data)}-{minutes:g}min-seed{seed}{'-quick' if quick else ''}")

    def has(self, name: str) -> bool:
        return self._path(name, "json").exists()

    def read(self, name: str) -> Cell:
        cell: Cell = json.loads(self._path(name, "json").read_text(encoding="utf-8"))
        return cell

    def find(self, name: str) -> Cell | None:
        """The cell, or None if it is not finished."""
        return self.read(name) if self.has(name) else None

    def write(self, name: str, cell: Cell) -> None:
        text = json.dumps(cell, indent=1, allow_nan=False)
        self._whole(self._path(name, "json"), lambda path: path.write_text(text, encoding="utf-8"))

    def run(self, task: Task) -> Cell:
        """The task's cell: made now, or read if an earlier run finished it."""
        if not self.has(task.name):
            self.write(task.name, task.run())
        return self.read(task.name)

    def forget(self, name: str) -> None:
        """The cell counts as unfinished from now on."""
        self._path(name, "json").unlink(missing_ok=True)

    def save_model(self, name: str, generator: Generator) -> None:
        state = generator.state()
        tensors = {key: value.contiguous() for key, value in state.tensors.items()}
        self._whole(self._path(name, "safetensors"), lambda path: save_file(tensors, path))
        config = json.dumps(state.config)
        self._whole(self._path(name, "config"), lambda path: path.write_text(config, encoding="utf-8"))

    def load_model(self, name: str, settings: dict[str, Any] | None = None) -> Generator:
        """The model, with some of its settings changed: those that matter when records are drawn."""
        config = json.loads(self._path(name, "config").read_text(encoding="utf-8"))
        if settings:
            config["settings"] = config["settings"] | settings
        return from_state(State(load_file(self._path(name, "safetensors")), config))

    def save_records(self, name: str, records: Records) -> None:
        def write(path: Path) -> None:
            with path.open("wb") as file:  # given a path, numpy would add a suffix
                np.savez_compressed(file, indptr=records.indptr, indices=records.indices, n_codes=records.n_codes)

        self._whole(self._path(name, "npz"), write)

    def load_records(self, name: str) -> Records:
        with np.load(self._path(name, "npz"), allow_pickle=False) as arrays:
            return Records(arrays["indptr"], arrays["indices"], int(arrays["n_codes"]))

    def has_records(self, name: str) -> bool:
        return self._path(name, "npz").exists()

    def _path(self, name: str, suffix: str) -> Path:
        return self.folder / f"{'/'.join(slug(part) for part in name.split('/'))}.{suffix}"

    def _whole(self, path: Path, write: Callable[[Path], Any]) -> None:
        """A run that is killed leaves a file with another name, which nobody reads."""
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        write(unfinished)
        unfinished.replace(path)


def slug(text: str) -> str:
    """The text as a part of a file name."""
    return re.sub(r"[^a-z0-9.-]+", "-", text.lower())
