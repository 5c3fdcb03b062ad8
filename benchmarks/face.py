"""What people and platforms meet first: the web application, and the doors beside it.

python -m benchmarks.face [--quick] [--stage NAME] [--json FILE]

`pages`: bytes, requests, time and barriers of the web application, in a real Chromium. The other stages are those of
benchmarks.doors.
"""

from collections.abc import Callable

from benchmarks._face_pages import pages
from benchmarks._harness import Figures, run_stages
from benchmarks.doors import STAGES as DOORS

# name -> a function of (figures, quick)
STAGES: dict[str, Callable[[Figures, bool], None]] = {"pages": pages, **DOORS}


def main() -> None:
    run_stages("The web application and the doors for platforms", STAGES)


if __name__ == "__main__":
    main()
