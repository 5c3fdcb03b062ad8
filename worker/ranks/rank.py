"""`python -m worker.ranks.rank`: one of the processes that share a training. It ends with the one that started it."""

import json
import logging
import os
import signal
import sys
import threading
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any, BinaryIO

import torch
import torch.distributed as dist

from ehr.errors import EhrError, OutOfMemoryError, TrainingStopped
from runtime.logs import configure_logging, place_of
from worker.engine.checkpoints import Checkpoint
from worker.engine.generators import Generator, generator_named
from worker.engine.training import Hooks, TrainingProgress
from worker.engine.training.processes import Processes
from worker.failures import is_out_of_memory, reason_and_detail
from worker.processes import die_with_parent
from worker.ranks.messages import STOP, read_request, send
from worker.tasks.loading import pack_tensors

log = logging.getLogger(__name__)
# Evaluations on held-out records are made by all processes at once, so none waits long for another's next step.
LONGEST_WAIT = timedelta(minutes=30)


class Commands:
    """What the parent has told rank 0, heard by a thread."""

    def __init__(self, file: BinaryIO) -> None:
        self.stop, self.checkpoint_wanted = threading.Event(), threading.Event()
        threading.Thread(target=self._listen, args=(file,), daemon=True).start()

    def _listen(self, file: BinaryIO) -> None:
        while command := file.read(1):
            (self.stop if command == STOP else self.checkpoint_wanted).set()
        os._exit(1)  # the parent is gone


def hooks_of_first(report: BinaryIO, commands: Commands, device: torch.device) -> Hooks:
    """Of rank 0, which alone tells how it goes."""

    def on_progress(progress: TrainingProgress) -> None:
        send(report, {"kind": "progress", **asdict(progress)})

    def on_checkpoint(checkpoint: Checkpoint) -> None:
        if commands.stop.is_set() or commands.checkpoint_wanted.is_set():
            commands.checkpoint_wanted.clear()
            send(report, {"kind": "checkpoint", "values": checkpoint.values}, pack_tensors(checkpoint.tensors))

    def on_calibration(drawn: int, of: int) -> None:
        send(report, {"kind": "calibration", "drawn": drawn, "of": of})

    return Hooks(
        on_progress,
        on_checkpoint,
        lambda: _agreed(commands.stop.is_set(), device),
        on_calibration=on_calibration,
    )


def _agreed(stop: bool, device: torch.device) -> bool:
    """Whether rank 0 was told to stop: all processes stop after the same step, or they would wait for each other."""
    return Processes.current().agreed(float(stop), device) > 0


def fit(asked: dict[str, Any], report: BinaryIO) -> Generator:
    device = torch.device(asked["device"])
    if device.type == "cuda":
        torch.cuda.set_device(device)
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(
        backend,
        init_method=f"file://{asked['meeting_place']}",
        rank=asked["rank"],
        world_size=asked["world"],
        timeout=LONGEST_WAIT,
    )
    name, request = read_request(asked["request"])
    if asked["rank"] == 0:
        hooks = hooks_of_first(report, Commands(os.fdopen(asked["commands"], "rb", 0)), device)
    else:
        hooks = Hooks(should_stop=lambda: _agreed(False, device))
    generator = generator_named(name).fit(replace(request, device=asked["device"], hooks=hooks))
    dist.barrier()  # whoever leaves first would look like one that was lost
    return generator


def main() -> None:
    asked = json.loads(sys.argv[1])
    die_with_parent(signal.SIGKILL, asked["parent"])
    for number in (signal.SIGTERM, signal.SIGINT):  # which may reach the whole group: the parent decides what to do
        signal.signal(number, signal.SIG_IGN)
    configure_logging(asked["log_level"])
    report: BinaryIO = os.fdopen(asked["report"], "wb")
    try:
        generator = fit(asked, report)
        if asked["rank"] == 0:
            state = generator.state()
            send(report, {"kind": "done", "config": state.config}, pack_tensors(state.tensors))
        else:
            send(report, {"kind": "done"})
    except TrainingStopped as stopped:
        send(report, {"kind": "stopped", "detail": str(stopped)})
    except Exception as error:
        log.error("a training process failed", extra={"type": type(error).__name__, "at": place_of(error)})
        of_memory = is_out_of_memory(error) and not isinstance(error, EhrError)
        kind = OutOfMemoryError if of_memory else type(error)
        is_told = of_memory or isinstance(error, EhrError)
        detail = reason_and_detail(error)[1]
        send(report, {"kind": "failed", "type": kind.__name__ if is_told else None, "detail": detail})
    os._exit(0)  # on a busy machine, gloo's threads abort a process that takes its time to end


if __name__ == "__main__":
    main()
