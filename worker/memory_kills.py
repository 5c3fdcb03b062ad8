"""What the kernel ends because the memory of this container is used up: nobody hears of it but the container's counter,
and whoever looks for the process."""

from collections.abc import Callable
from pathlib import Path

from sqlalchemy import select

from model_store.database import Database
from model_store.repositories import LeaseRepository
from model_store.tables import Job

CGROUPS, OWN, PROCESSES = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup"), Path("/proc")


class MemoryKills:
    """`look` now and then: jobs of `host` whose process was ended by the kernel are tried again at once, and those that
    have no attempt left fail by name."""

    def __init__(self, database: Database, host: str, count: Callable[[], int] | None = None) -> None:
        self._database, self._host, self._count = database, host, count or kills
        self._seen = self._count()

    def look(self) -> list[str]:
        """Jobs that were ended so since the last look."""
        seen = self._count()
        if seen <= self._seen:
            return []
        with self._database.session_scope() as session:
            here = select(Job.worker).where(Job.state == "running", Job.worker.startswith(f"{self._host}:"))
            dead = [
                name for name in session.scalars(here) if name is not None and not is_alive(int(name.split(":")[1]))
            ]
            found = LeaseRepository(session).out_of_memory(dead)
        self._seen = seen  # after it was written: a database that is away is asked again
        return found


def kills(cgroups: Path = CGROUPS, own: Path = OWN) -> int:
    """How many processes of this container or unit were ended for want of memory; 0 where nobody counts."""
    places = [cgroups / "memory.events", cgroups / "memory" / "memory.oom_control"]
    try:
        for line in own.read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if controllers == "":
                places.insert(0, cgroups / group.strip("/") / "memory.events")  # version 2
            elif "memory" in controllers.split(","):
                places.insert(0, cgroups / "memory" / group.strip("/") / "memory.oom_control")
    except (OSError, ValueError):
        pass
    for place in places:
        try:
            counts = dict(line.split() for line in place.read_text().splitlines())
            return int(counts["oom_kill"])
        except (OSError, ValueError, KeyError):
            continue
    return 0


def is_alive(pid: int) -> bool:
    """Whether there is such a process, and one that its parent only has yet to hear of is not."""
    try:
        return (PROCESSES / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False
