"""A million records of 949 codes through the API, made by two workers: time, memory, bytes, and the estimate beside it.

python -m benchmarks.million [--quick] [--json FILE]
"""

from benchmarks._harness import Figures, options, progress_bar, show
from benchmarks._million import Measured, measure_each

FULL, QUICK = (100_000, 1_000_000), (1_024, 8_192)


def main() -> None:
    parser = options("A million records through the API")
    parser.add_argument("--workers", type=int, default=2, help="worker processes")
    arguments = parser.parse_args()
    with progress_bar("records") as progress:
        measured = measure_each(list(QUICK if arguments.quick else FULL), arguments.workers, progress=progress)
    show(f"cohorts of 949 codes, {arguments.workers} workers", *table(measured))
    figures = Figures()
    add_figures(figures, measured[-1])
    figures.finish(arguments.json)


def table(measured: list[Measured]) -> tuple[list[str], list[list[str]]]:
    """Header and rows."""
    header = ["records", "seconds", "expected", "records per s", "most memory of each worker, GiB", "bytes on disk"]
    rows = [
        [
            f"{m.records:,}",
            f"{m.seconds:.1f}",
            "-" if m.expected_seconds is None else f"{m.expected_seconds:.1f}",
            f"{m.records / m.seconds:,.0f}",
            ", ".join(f"{peak:.2f}" for peak in m.peak_rss_gib),
            f"{m.bytes_on_disk:,}",
        ]
        for m in measured
    ]
    return header, rows


def add_figures(figures: Figures, largest: Measured) -> None:
    """What `benchmarks.conditional` reports too."""
    figures.add("million.seconds", largest.seconds * 1_000_000 / largest.records, "s")
    figures.add("million.peak_rss_gib", max(largest.peak_rss_gib), "GiB")
    figures.add("million.bytes_per_record", largest.bytes_on_disk / largest.records, "B")
    if largest.expected_seconds is not None:
        figures.add("million.expected_over_taken", largest.expected_seconds / largest.seconds, "ratio")


if __name__ == "__main__":
    main()
