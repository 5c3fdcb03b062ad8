"""What the service writes is for the account it runs as, and for nobody else on the machine: it holds patients."""

import os
import stat
from contextlib import suppress
from pathlib import Path

OTHERS = 0o077
# what versions before have left in a data folder for everyone to read
OURS = ("ehr-d3pm.sqlite", "ehr-d3pm.sqlite-wal", "ehr-d3pm.sqlite-shm", "store", "scratch", "valkey", "worker.log")


def keep_private(data_dir: Path) -> None:
    """From now on this process and its children make folders 0700 and files 0600. What is in the data folder already is
    closed too; the folder itself, if it was there before, may be anybody's and stays as it is."""
    os.umask(OTHERS)
    for path in (data_dir / name for name in OURS):
        with suppress(FileNotFoundError, PermissionError):
            mode = stat.S_IMODE(path.stat().st_mode)
            if mode & OTHERS:
                path.chmod(mode & ~OTHERS)
