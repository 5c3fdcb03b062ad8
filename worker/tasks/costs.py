"""What generating costs, measured right after training on the machine that trained: the source of estimates.

Drawing a full chunk in s network calls takes `seconds_per_chunk + s * CHUNK * seconds_per_record_call`: what is paid
once for each record (the output layer, packing), and what is paid with every call.
"""

import ctypes
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from ehr.conditions import Condition
from ehr.generators import CHUNK
from ehr.generators.spec import INDEPENDENTLY
from ehr.history_conditions import HistoryCondition
from ehr.vocabulary import Vocabulary
from model_store.cohorts import pack_history_part, pack_part
from worker.contract import UNCONDITIONAL
from worker.engine.generators import Generator, SampleRequest, State, from_state, history_generator_named
from worker.engine.histories.protocol import HistoryGenerator, HistoryRequest
from worker.engine.training import resolve_device
from worker.tasks.loading import pack_tensors, unpack_tensors

T = TypeVar("T")

REJECTION = "rejection"
BUDGET_SECONDS = 1.2  # slow networks are measured with fewer calls than they need, or on fewer records
ROWS = (16, 128, CHUNK)
PATIENTS = (16, 64, 256, CHUNK)


def measured_costs(
    state: State, vocabulary: Vocabulary, common_code: int, base_bytes: int | None, device: str = "cpu"
) -> dict[str, Any]:
    """Seconds and bytes of drawing from a trained generator, without a condition and by each of its methods.

    Rejection is left out: what it takes depends on how rare the condition is, so one condition tells nothing of others.
    The generator is loaded as a generate job loads it. `common_code` is asked for in the conditioned measurements;
    `base_bytes` is what a worker holds before it has a model.
    """
    start = time.perf_counter()
    generator = from_state(State(unpack_tensors(pack_tensors(state.tensors)), state.config))
    generator.to(resolve_device(device))
    load_seconds = time.perf_counter() - start
    weights = sum(tensor.numel() * tensor.element_size() for tensor in state.tensors.values())
    condition = Condition.of(len(vocabulary), all_of=[common_code])
    requests = {UNCONDITIONAL: SampleRequest(1)} | {
        method: SampleRequest(1, condition=condition, method=method)
        for method in generator.spec.methods
        if method != REJECTION
    }
    costs = {name: _cost(generator, request, vocabulary) for name, request in requests.items()}
    return {
        "threads": torch.get_num_threads(),
        "load_seconds": round(load_seconds, 4),
        "base_bytes": None if base_bytes is None else base_bytes + weights,
        "methods": costs,
        "independent_factor": _independent_factor(generator, costs[UNCONDITIONAL], vocabulary),
    }


def _independent_factor(generator: Generator, cost: dict[str, Any], vocabulary: Vocabulary) -> float | None:
    """How much longer records take that are drawn each by itself; None where that is not measured: no model draws them
    otherwise, or a chunk of them takes too long."""
    offered = generator.spec.samplings(generator.settings_in_force(), None)
    dealt = cost["seconds_per_chunk"] + CHUNK * (cost["steps"] or 0) * cost["seconds_per_record_call"]
    if INDEPENDENTLY not in offered[1:] or not 0 < dealt < BUDGET_SECONDS:
        return None
    took = min(_seconds(generator, SampleRequest(CHUNK, sampling=INDEPENDENTLY), vocabulary) for _ in range(2))
    return float(f"{max(took / dealt, 1.0):.3g}")


def _seconds(generator: Generator, request: SampleRequest, vocabulary: Vocabulary) -> float:
    start = time.perf_counter()
    records = generator.sample(request)
    pack_part(0, records, vocabulary)
    return time.perf_counter() - start


def measured_history_costs(
    state: State, vocabulary: Vocabulary, common_code: int, base_bytes: int | None, device: str = "cpu"
) -> dict[str, Any]:
    """The same of a generator of patients over time: without a condition, and where `common_code` must come at some
    visit. Conditions of several parts take longer."""
    start = time.perf_counter()
    named = history_generator_named(str(state.config["generator"]))
    generator = named.from_state(State(unpack_tensors(pack_tensors(state.tensors)), state.config))
    generator.to(resolve_device(device))
    load_seconds = time.perf_counter() - start
    weights = sum(tensor.numel() * tensor.element_size() for tensor in state.tensors.values())
    ever = HistoryCondition(len(vocabulary), ever=(frozenset([common_code]),))
    conditions = {UNCONDITIONAL: None} | dict.fromkeys(generator.spec.methods, ever)
    return {
        "threads": torch.get_num_threads(),
        "load_seconds": round(load_seconds, 4),
        "base_bytes": None if base_bytes is None else base_bytes + weights,
        "methods": {name: _history_cost(generator, asked, vocabulary) for name, asked in conditions.items()},
    }


def _history_cost(
    generator: HistoryGenerator, condition: HistoryCondition | None, vocabulary: Vocabulary
) -> dict[str, Any]:
    """A full chunk is drawn where that is affordable. Otherwise it is on the line through the two largest numbers of
    patients that were drawn: every visit has a price that hardly grows with those who have one."""

    def draw(rows: int) -> tuple[float, int | None]:
        start = time.perf_counter()
        _, peak = with_peak(
            lambda: pack_history_part(0, generator.sample(HistoryRequest(rows, condition=condition)), vocabulary)
        )
        return time.perf_counter() - start, peak

    draw(1)  # libraries load, threads start
    drawn = [(PATIENTS[0], *draw(PATIENTS[0]))]
    for rows in PATIENTS[1:]:
        if len(drawn) > 1 and drawn[-1][1] * (rows / drawn[-1][0]) ** 0.5 > BUDGET_SECONDS:
            break
        drawn.append((rows, *draw(rows)))
    (fewer, *least), (rows, *most) = drawn[-2:]
    seconds, peak = (
        None if low is None or high is None else high + max(high - low, 0) * (CHUNK - rows) / (rows - fewer)
        for low, high in zip(least, most, strict=True)
    )
    assert seconds is not None
    return _cost_row(None, seconds, 0.0, None if peak is None else int(peak))


def _cost(generator: Generator, request: SampleRequest, vocabulary: Vocabulary) -> dict[str, Any]:
    steps = generator.steps_of(request)

    def draw(rows: int, calls: int | None) -> float:
        return _seconds(generator, replace(request, n=rows, steps=calls), vocabulary)

    draw(1, None if steps is None else 1)  # libraries load, threads start
    if steps is None:
        seconds, peak = with_peak(lambda: min(draw(CHUNK, None) for _ in range(3)))
        return _cost_row(None, seconds, 0.0, peak)
    rows = _affordable_rows(draw)
    (per_chunk, per_call), peak = with_peak(lambda: _line(lambda calls: draw(rows, calls), steps))
    scale = CHUNK / rows
    return _cost_row(steps, per_chunk * scale, per_call / rows, None if peak is None else int(peak * scale))


def _affordable_rows(draw: Callable[[int, int | None], float]) -> int:
    """A full chunk, unless a single call takes too long. Time hardly grows with the rows while they are few."""
    rows = ROWS[0]
    for more in ROWS[1:]:
        if draw(rows, 1) * (more / rows) > BUDGET_SECONDS:
            break
        rows = more
    return rows


def _line(draw: Callable[[int], float], steps: int) -> tuple[float, float]:
    """(seconds that do not depend on the calls, seconds for each call), from as many calls as the budget allows."""
    calls, before = 1, 0
    seconds, seconds_before = draw(calls), 0.0
    while calls < steps and (seconds < BUDGET_SECONDS or before == 0):
        before, seconds_before = calls, seconds
        calls = min(4 * calls, steps) if seconds < BUDGET_SECONDS else calls + 1
        seconds = draw(calls)
    per_call = min(max(seconds - seconds_before, 0.0) / (calls - before), seconds / calls)
    return seconds - calls * per_call, per_call


def _cost_row(steps: int | None, per_chunk: float, per_record_call: float, peak: int | None) -> dict[str, Any]:
    return {
        "steps": steps,
        "seconds_per_chunk": float(f"{per_chunk:.3g}"),
        "seconds_per_record_call": float(f"{per_record_call:.3g}"),
        "bytes_per_chunk": peak,
    }


def with_peak(work: Callable[[], T]) -> tuple[T, int | None]:
    """(what the work gives, the most memory it held above what was held before)."""
    give_back_memory()
    before = memory_bytes()
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the peak is counted anew
    except OSError:
        return work(), None
    result = work()
    peak = memory_bytes("VmHWM")
    return result, None if before is None or peak is None else max(peak - before, 0)


def give_back_memory() -> None:
    """Have the allocator return what training no longer needs: memory used again would not be counted."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only glibc has it
        if trim is not None:
            trim(0)


def memory_bytes(field: str = "VmRSS") -> int | None:
    """What this process holds now, or with VmHWM the most it held; None where the kernel does not say."""
    try:
        lines = Path(f"/proc/{os.getpid()}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:")), None)
