"""The paper's tables, side by side with its baselines: `python -m benchmarks.paper --help`."""
