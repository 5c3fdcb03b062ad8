"""The options that say which records are asked for, the same for `generate` and `estimate`."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Annotated, Any

import typer

from ehr_d3pm.cli.output import Exit, fail

Codes = Annotated[list[str] | None, typer.Option(metavar="CODE", help="may be given more than once; * is a wildcard")]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a cohort is asked to be; every field is an option."""

    n: Annotated[int, typer.Option("-n", "--records", help="synthetic records to draw")] = 1000
    all_of: Codes = None
    any_of: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CODE", help="one of those given; with commas (A,B) each is a group of its own; * is a wildcard"
        ),
    ] = None
    none_of: Codes = None
    target: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CODE=SHARE", help="such as 'ICD10CM:E11*=0.3': that share has it, the rest does not; repeatable"
        ),
    ] = None
    method: Annotated[str | None, typer.Option(help="how conditions are met: auto, exact, langevin or rejection")] = (
        None
    )
    strength: Annotated[float | None, typer.Option(help="of the guidance by langevin")] = None
    steps: Annotated[int | None, typer.Option(help="network calls for each record")] = None
    seed: int = 0

    def options(self) -> dict[str, Any]:
        """As `Client.generate` takes them."""
        return {
            "all_of": self.all_of,
            "any_of": parsed_groups(self.any_of or []),
            "none_of": self.none_of,
            "targets": parsed_targets(self.target or []),
            "method": self.method,
            "strength": self.strength,
            "steps": self.steps,
            "seed": self.seed,
        }


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

    own = {name: parameter for name, parameter in inspect.signature(command).parameters.items() if name != "asked"}
    arguments = [parameter for parameter in own.values() if parameter.kind is not inspect.Parameter.KEYWORD_ONLY]
    others = [parameter for parameter in own.values() if parameter.kind is inspect.Parameter.KEYWORD_ONLY]
    signature = inspect.Signature([*arguments, *options, *others])
    vars(wrapped)["__signature__"] = signature
    wrapped.__annotations__ = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    return wrapped


def parsed_groups(words: list[str]) -> list[Any]:
    """Codes are one group; if any word has commas, every word is a group."""
    return [word.split(",") for word in words] if any("," in word for word in words) else words


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
