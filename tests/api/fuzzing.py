"""Requests that follow the OpenAPI document, and some that do not, with every check that schemathesis has: status
codes, headers, media types and bodies as the document declares them, wrong requests refused, keys asked for."""

from collections.abc import Callable
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import load_all_checks

NOT_ASKED = ["/readyz", "/jobs/{job_id}/events"]  # nobody listens at the broker's socket; a stream has no end
# Wrong keys are among what is sent, and none of them may be answered by "too many wrong keys came from here".
FAILED_LOGINS = 1_000_000


def failures_of(
    document: dict[str, Any], url: str, key: str, examples: int, told: Callable[[int, int], None] = lambda *_: None
) -> set[tuple[str, str]]:
    """(operation, first line of what is wrong)."""
    load_all_checks()
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=url)
    # a request can have the right form and ask for what cannot be: a code that no model knows, a file that is none
    accepted = schema.config.checks.positive_data_acceptance
    accepted.expected_statuses = [*accepted.expected_statuses, "422"]
    operations: list[Any] = [result.ok() for result in schema.exclude(path=NOT_ASKED).get_all_operations()]  # type: ignore[union-attr]
    found: set[tuple[str, str]] = set()
    for number, operation in enumerate(operations):
        told(number, len(operations))
        _try(operation, examples, {"Authorization": f"Bearer {key}"}, found)
    return found


def _try(operation: Any, examples: int, headers: dict[str, str], found: set[tuple[str, str]]) -> None:
    # with the call itself: a key that is configured for all calls is taken for a generated one, which nobody may accept
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def run(case: Any) -> None:
        try:
            case.call_and_validate(headers=headers)
        except BaseExceptionGroup as several:
            for error in several.exceptions:
                found.add((operation.label, str(error).strip().splitlines()[0][:100]))
        except AssertionError as error:
            found.add((operation.label, str(error).strip().splitlines()[0][:100]))

    run()
