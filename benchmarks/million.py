"""A million records of 949 codes through the API, made by two workers: time, memory, bytes, and the estimate beside it.

python -m benchmarks.million [--quick] [--json FILE]
"""

from benchmarks._harness import Figures, options
from benchmarks._million import measure


def main() -> None:
    parser = options("A million records through the API")
    parser.add_argument("--workers", type=int, default=2, help="worker processes")
    arguments = parser.parse_args()
    figures = Figures()
    measure(figures, arguments.quick, arguments.workers)
    figures.finish(arguments.json)


if __name__ == "__main__":
    main()
