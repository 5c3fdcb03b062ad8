"""Generators of other makers, as they ship them, beside ours: `python -m benchmarks.peers --help`."""
