"""What people and platforms meet first: the web application, and the doors beside it.

python -m benchmarks.face [--quick] [--stage NAME] [--json FILE]

`pages`: bytes, requests, time and barriers of the web application, in a real Chromium.
"""

from collections.abc import Callable
from pathlib import Path

from benchmarks._face_pages import pages
from benchmarks._harness import Figures, options

# name -> a function of (figures, quick)
STAGES: dict[str, Callable[[Figures, bool], None]] = {"pages": pages}


def main() -> None:
    parser = options("The web application and the doors for platforms")
    parser.add_argument("--stage", choices=list(STAGES), action="append", help="only this one; may be repeated")
    arguments = parser.parse_args()
    figures = Figures()
    for name in arguments.stage or STAGES:
        STAGES[name](figures, arguments.quick)
    target: Path | None = arguments.json
    figures.finish(target)


if __name__ == "__main__":
    main()
