"""All checks that schemathesis has, against a running service."""

import logging
import tempfile
from pathlib import Path

from benchmarks._harness import Figures, progress_bar, show
from tests.api.conftest import settings_for
from tests.api.front import Front
from tests.api.fuzzing import FAILED_LOGINS, failures_of


def schema_failures(figures: Figures, quick: bool) -> None:
    """On a service of its own, empty, with a key that may do all there is."""
    logging.getLogger("runtime").setLevel(logging.ERROR)  # nobody listens at the broker's socket, and that is said
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        settings = settings_for(Path(name), f"sqlite:///{Path(name) / 'fuzzed.sqlite'}", failed_logins=FAILED_LOGINS)
        with Front(settings) as front, progress_bar("operations") as told:
            failures = failures_of(front.app.openapi(), front.url, front.key("fuzzer"), 3 if quick else 50, told)
    if failures:
        show("schemathesis", ["operation", "failure"], sorted([*map(list, failures)])[:40])
    figures.add("schemathesis.failures", len(failures), "kinds, by operation")
