"""TabularARGN of mostlyai-engine, through its own steps: split, analyze, encode, train, generate.

`wide`: a table with a column of 0 and 1 for each code. `sequence`: a row for each code of a record, the most common
code first, which hangs on a table of records without any column.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from files import Records, Request, read, tell, timed, write_sets
from mostlyai import engine

KEY, CODE = "record", "code"


def main(folder: Path) -> None:
    asked, records = read(folder)
    told: dict[str, Any] = {"version": engine.__version__}
    engine.set_random_state(asked.seed)
    workspace = folder / "workspace"
    with timed(told, "prepare_seconds"):
        engine.split(workspace_dir=workspace, trn_val_split=1 - asked.held_out, **_tables(asked, records))
        engine.analyze(workspace_dir=workspace)
        engine.encode(workspace_dir=workspace)
    with timed(told, "train_seconds"):
        engine.train(workspace_dir=workspace, max_training_time=asked.seconds / 60, max_epochs=1e6, device="cpu")
    with timed(told, "sampling_seconds"):
        drawn = _drawn(asked, workspace, asked.records)
    write_sets(folder / "cohort.npz", _sets(asked, drawn, records.n_codes), records.n_codes)
    if asked.way == "wide":
        _condition(asked, workspace, told)
    tell(folder, told)


def _tables(asked: Request, records: Records) -> dict[str, Any]:
    if asked.way == "wide":
        table = pd.DataFrame(records.dense(), columns=[str(code) for code in range(records.n_codes)])
        return {"tgt_data": table, "tgt_encoding_types": dict.fromkeys(table.columns, "TABULAR_CATEGORICAL")}
    rows = np.repeat(np.arange(len(records)), np.diff(records.indptr))
    order = np.lexsort((records.by_commonness()[records.indices], rows))
    codes = pd.DataFrame({KEY: rows[order], CODE: records.indices[order].astype(str)})
    return {
        "tgt_data": codes,
        "tgt_context_key": KEY,
        "tgt_encoding_types": {CODE: "TABULAR_CATEGORICAL"},
        "ctx_data": pd.DataFrame({KEY: np.arange(len(records))}),
        "ctx_primary_key": KEY,
    }


def _drawn(asked: Request, workspace: Path, n: int) -> pd.DataFrame:
    if asked.way == "wide":
        engine.generate(workspace_dir=workspace, sample_size=n, device="cpu")
    else:
        engine.generate(workspace_dir=workspace, ctx_data=pd.DataFrame({KEY: np.arange(n)}), device="cpu")
    return pd.read_parquet(workspace / "SyntheticData")


def _sets(asked: Request, drawn: pd.DataFrame, n_codes: int) -> list[set[int]]:
    """What it calls rare and does not name is no code."""
    if asked.way == "wide":
        rows, codes = np.nonzero((drawn[[str(code) for code in range(n_codes)]].astype(str) == "1").to_numpy())
        n = len(drawn)
    else:
        named = drawn[pd.to_numeric(drawn[CODE], errors="coerce").notna()]
        rows, codes, n = named[KEY].to_numpy().astype(int), named[CODE].to_numpy().astype(int), asked.records
    sets: list[set[int]] = [set() for _ in range(n)]
    for row, code in zip(rows.tolist(), codes.tolist(), strict=True):
        sets[row].add(code)
    return sets


def _condition(asked: Request, workspace: Path, told: dict[str, Any]) -> None:
    """Records with one column given, which this peer can do."""
    given = pd.DataFrame({str(asked.code): np.ones(asked.conditioned, dtype=np.int8)})
    with timed(told, "condition_seconds"):
        engine.generate(workspace_dir=workspace, seed_data=given, device="cpu")
    drawn = pd.read_parquet(workspace / "SyntheticData")
    told["condition_attained"] = float((drawn[str(asked.code)].astype(str) == "1").mean())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
