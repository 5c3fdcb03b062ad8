"""Starts the processes of a training, listens to them, and starts them again if one is lost."""

import json
import logging
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Self

import torch

import ehr.errors
from ehr.errors import EhrError, TrainingError, TrainingStopped
from runtime.settings import Settings
from worker.engine.checkpoints import Checkpoint
from worker.engine.generators import FitRequest, Generator, State, from_state
from worker.engine.training import Hooks, TrainingProgress, resolve_device
from worker.ranks.messages import STOP, WANT_CHECKPOINT, receive, write_request
from worker.tasks.checkpoints import Checkpoints
from worker.tasks.loading import unpack_tensors
from worker.threads import COUNTS

log = logging.getLogger(__name__)
LOOK_SECONDS = 0.1
# One that fails takes the others with it, who may say so before it does: for so long they are all listened to.
LAST_WORDS_SECONDS = 20.0

Message = tuple[int, dict[str, Any] | None, bytes]  # rank, what it said (None: it has ended), bytes


class RankLostError(Exception):
    """A process ended without a word, most likely killed."""


def fit_together(
    world: int, generator: str, request: FitRequest, checkpoints: Checkpoints, settings: Settings
) -> Generator:
    """`Generator.fit` in so many processes. When one is lost, all go on from the newest checkpoint, MAX_ATTEMPTS times
    in a row without getting further."""
    lost, furthest = 0, _step_of(request.checkpoint)
    while True:
        try:
            with Ranks(world, generator, request, settings) as ranks:
                state = ranks.listen(request.hooks, checkpoints)
            trained = from_state(state)
            trained.to(resolve_device(settings.device))
            return trained
        except RankLostError as error:
            checkpoint = checkpoints.newest()
            lost = 1 if _step_of(checkpoint) > furthest else lost + 1
            furthest = max(furthest, _step_of(checkpoint))
            log.warning("a training process was lost", extra={"how": str(error), "step": furthest, "in_a_row": lost})
            if lost >= settings.max_attempts:
                raise TrainingError(f"{error}, {lost} times in a row: there may be too little memory") from None
            request = replace(request, checkpoint=checkpoint)


def _step_of(checkpoint: Checkpoint | None) -> int:
    return 0 if checkpoint is None else int(checkpoint.values["step"])


class Ranks:
    """The processes of one training. Leaving the `with` block ends them all."""

    def __init__(self, world: int, generator: str, request: FitRequest, settings: Settings) -> None:
        self.world, self.settings = world, settings
        self._generator, self._request = generator, request
        self._inbox: queue.Queue[Message] = queue.Queue(maxsize=8)
        self._stack, self._processes = ExitStack(), list[subprocess.Popen[bytes]]()
        self._is_told_to_stop = self._is_checkpoint_wanted = False

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self) -> None:
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="ehr-d3pm-ranks-")))
        request = self._stack.enter_context(write_request(self._generator, self._request, self.settings.scratch_dir))
        heard, told = os.pipe()
        self._commands: BinaryIO = self._stack.enter_context(os.fdopen(told, "wb", 0))
        with os.fdopen(heard, "rb", 0):
            for rank in range(self.world):
                self._start_one(rank, request.fileno(), heard, folder / "meeting")

    def _start_one(self, rank: int, request: int, commands: int, meeting_place: Path) -> None:
        read_from, report = os.pipe()
        asked = {
            "rank": rank,
            "world": self.world,
            "device": device_of(rank, self.settings.device),
            "parent": os.getpid(),
            "request": request,
            "report": report,
            "commands": commands,
            "meeting_place": str(meeting_place),
            "log_level": self.settings.log_level,
        }
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "worker.ranks.rank", json.dumps(asked)],
                stdin=subprocess.DEVNULL,
                pass_fds=(request, report, *((commands,) if rank == 0 else ())),
                env=environment_of(self.world, os.environ),
            )
        finally:
            os.close(report)  # so that the end of the process is the end of the file
        self._processes.append(process)
        threading.Thread(target=self._hear, args=(rank, os.fdopen(read_from, "rb")), daemon=True).start()

    def _hear(self, rank: int, file: BinaryIO) -> None:
        with file:
            while (message := receive(file)) is not None:
                self._inbox.put((rank, *message))
        self._inbox.put((rank, None, b""))

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
        self._stack.close()
        while True:  # whoever still wants to tell something is let go
            try:
                self._inbox.get(timeout=LOOK_SECONDS)
            except queue.Empty:
                return

    # --- while they train ---

    def listen(self, hooks: Hooks, checkpoints: Checkpoints) -> State:
        """Pass on what rank 0 tells until it is done; what it has learned."""
        state: State | None = None
        done: set[int] = set()
        while len(done) < self.world:
            self._tell(hooks, checkpoints)
            try:
                rank, message, payload = self._inbox.get(timeout=LOOK_SECONDS)
            except queue.Empty:
                continue
            kind = None if message is None else message["kind"]
            if message is None or kind == "failed":
                if rank not in done:
                    self._raise_for(rank, message)
            elif kind == "progress":
                _report(hooks, message)
            elif kind == "calibration":
                if hooks.on_calibration is not None:
                    hooks.on_calibration(message["drawn"], message["of"])
            elif kind == "checkpoint":
                self._is_checkpoint_wanted = False
                checkpoints.save(Checkpoint(unpack_tensors(payload), message["values"]))
            elif kind == "stopped" and rank == 0:  # its last checkpoint has come before
                raise TrainingStopped(message["detail"])
            else:
                done.add(rank)
                if rank == 0:
                    state = State(unpack_tensors(payload), message["config"])
        assert state is not None
        return state

    def _tell(self, hooks: Hooks, checkpoints: Checkpoints) -> None:
        try:
            if not self._is_told_to_stop and hooks.should_stop is not None and hooks.should_stop():
                self._is_told_to_stop = True
                self._commands.write(STOP)
            if not self._is_checkpoint_wanted and checkpoints.is_due:
                self._is_checkpoint_wanted = True
                self._commands.write(WANT_CHECKPOINT)
        except BrokenPipeError:
            pass  # rank 0 has ended, which is told in another way

    def _raise_for(self, rank: int, message: dict[str, Any] | None) -> None:
        """Of all that went wrong, the cause: an error that speaks for itself, else a process that was killed."""
        ends = {rank: message}
        deadline = time.monotonic() + LAST_WORDS_SECONDS
        while len(ends) < self.world and time.monotonic() < deadline:
            try:
                other, told, _ = self._inbox.get(timeout=LOOK_SECONDS)
            except queue.Empty:
                continue
            if told is None or told["kind"] == "failed":
                ends.setdefault(other, told)
        told_of = [told for told in ends.values() if told is not None and told["type"] is not None]
        if told_of:
            known = getattr(ehr.errors, told_of[0]["type"], TrainingError)
            raise (known if issubclass(known, EhrError) else TrainingError)(told_of[0]["detail"])
        for silent in (rank for rank, told in ends.items() if told is None):
            code = self._processes[silent].wait()
            raise RankLostError(f"process {silent} of {self.world} that trained ended with {_meaning(code)}")
        raise TrainingError(str(next(told["detail"] for told in ends.values() if told is not None)))


def _report(hooks: Hooks, message: Mapping[str, Any]) -> None:
    if hooks.on_progress is not None:
        hooks.on_progress(TrainingProgress(**{name: value for name, value in message.items() if name != "kind"}))


def _meaning(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def device_of(rank: int, device: str) -> str:
    """Each process has a GPU of its own; on the CPU they share the cores."""
    kind = resolve_device(device).type
    return f"{kind}:{rank % torch.cuda.device_count()}" if kind == "cuda" else kind


def environment_of(world: int, environment: Mapping[str, str]) -> dict[str, str]:
    """With its share of this process's threads, and gloo on the loopback device: all are on this host."""
    share = str(max(1, torch.get_num_threads() // world))
    own = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
    return {**own, **environment, **dict.fromkeys(COUNTS, share)}
