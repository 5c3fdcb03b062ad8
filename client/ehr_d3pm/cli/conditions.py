"""The options that say which records are asked for, the same for `generate` and `estimate`."""

import functools
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Annotated, Any

import typer

from ehr_d3pm.cli.output import Exit, fail

REPEATABLE = "repeatable; * is a wildcard"
ANY_OF = "every record has one of those given; with commas (A,B) each is a group of its own; * is a wildcard"
TARGET = "'ICD10CM:E11*=0.3': 30% of the records (of histories: patients, ever) have it, the rest do not; repeatable"
HISTORY = 'of models of histories, as docs/api.md has it: \'{"before": [{"first": "E11*", "then": "N18*"}]}\''
SAMPLING = "dealt (rare codes as common as the model says) or independent (every record by itself)"
Words = list[str] | None


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a cohort is asked to be; every field is an option."""

    n: Annotated[int, typer.Option("-n", "--records", help="synthetic records to generate")] = 1000
    all_of: Annotated[Words, typer.Option(metavar="CODE", help=f"every record has it; {REPEATABLE}")] = None
    any_of: Annotated[Words, typer.Option(metavar="CODE", help=ANY_OF)] = None
    none_of: Annotated[Words, typer.Option(metavar="CODE", help=f"no record has it; {REPEATABLE}")] = None
    targets: Annotated[Words, typer.Option("--target", metavar="CODE=SHARE", help=TARGET)] = None
    method: Annotated[str | None, typer.Option(help="how conditions are met: auto, exact, langevin, rejection")] = None
    strength: Annotated[float | None, typer.Option(help="how strongly langevin guides")] = None
    steps: Annotated[int | None, typer.Option(help="network calls per record")] = None
    sampling: Annotated[str | None, typer.Option(help=SAMPLING)] = None
    history: Annotated[str | None, typer.Option(metavar="JSON", help=HISTORY)] = None
    origin: Annotated[str | None, typer.Option(metavar="DATE", help="of histories: the day of all first visits")] = None
    seed: int = 0

    def options(self) -> dict[str, Any]:
        """As `Client.generate` takes them."""
        parsed = {"any_of": parsed_groups(self.any_of or []), "targets": parsed_targets(self.targets or [])}
        return vars(self) | parsed | {"history": parsed_history(self.history)}


def takes_conditions(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for every field of its parameter `asked`."""
    options = [
        inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type)
        for field in fields(Asked)
    ]

    @functools.wraps(command)
    def wrapped(*args: Any, **values: Any) -> None:
        asked = Asked(**{option.name: values.pop(option.name) for option in options})
        command(*args, asked=asked, **values)

    parameters = []
    for parameter in inspect.signature(command).parameters.values():
        parameters += options if parameter.name == "asked" else [parameter]
    vars(wrapped)["__signature__"] = inspect.Signature(parameters)
    wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapped


def parsed_groups(words: list[str]) -> list[Any]:
    """Codes are one group; if any word has commas, every word is a group."""
    return [word.split(",") for word in words] if any("," in word for word in words) else words


def parsed_history(text: str | None) -> dict[str, Any] | None:
    """What patients over time must be, as an object."""
    if text is None:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        fail("--history: write a JSON object, for example " + HISTORY.partition(": ")[2], Exit.USAGE)
    return dict(found)


def parsed_targets(words: list[str]) -> list[dict[str, Any]]:
    """`ICD10CM:E11*=0.3`, or several codes with commas between them, as targets."""
    targets = []
    for word in words:
        codes, equals, share = word.rpartition("=")
        try:
            targets.append({"codes": codes.split(","), "share": float(share)})
        except ValueError:
            equals = ""
        if not equals or not codes:
            fail(f"--target {word}: write CODE=SHARE, for example ICD10CM:E11*=0.3", Exit.USAGE)
    return targets
