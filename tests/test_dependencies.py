"""What is imported is declared, what is declared is used, once, and the lock files pin all of it."""

import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

from tests.arrows import ROOT, imports_in, modules

SERVICE: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# declared, and needed without an import
WITHOUT_IMPORT = {
    "psycopg": "SQLAlchemy's driver for Postgres, which it imports by its name in DATABASE_URL",
    "axe-core-python": "a script file inside of it is read",
    "mypy": "a command",
    "pytest-timeout": "a plugin of pytest",
    "pytest-xdist": "a plugin of pytest",
    "ruff": "a command",
    "simple-icd-10-cm": "imported by its name, with its deprecation warning silenced",
    "moto": "an S3 server that tests start as a process",
    "flask": "moto's server needs it; its extra `server` brings a dozen packages for other services too",
    "flask-cors": "as flask",
}
OURS = ("app", "benchmarks", "ehr", "model_store", "runtime", "tests", "worker")
# extras of the service: imported where they are needed, and only if they are installed
OPTIONAL = ("delta", "smart")
NOT_IN_THE_LOCK = {"torch", "ehr-d3pm-client"}  # a wheel for the machine; a folder of this repository


def name_of(requirement: str) -> str:
    return re.split(r"[\s\[<>=!~;@]", requirement, maxsplit=1)[0].lower().replace("_", "-").replace(".", "-")


def distributions(files: list[Path]) -> set[str]:
    """The distributions whose modules these files import."""
    providers = {**packages_distributions(), "ehr_d3pm": ["ehr-d3pm-client"]}  # installed or not
    imported = {
        each.module.split(".")[0] for file in files for each in imports_in(file.read_text(encoding="utf-8"), "")
    }
    imported -= {"", *OURS, *sys.stdlib_module_names}
    return {name_of(provider) for module in imported for provider in providers.get(module, [module])}


def of_the_service() -> list[Path]:
    return [file for file in modules(ROOT).values() if file.relative_to(ROOT).parts[0] != "client"]


def of_the_client() -> list[Path]:
    return [file for file in modules(ROOT).values() if file.relative_to(ROOT).parts[0] == "client"]


def of_tests() -> list[Path]:
    """Without what runs in environments of other makers' packages, which benchmarks make."""
    drivers = ROOT / "benchmarks" / "peers" / "drivers"
    found = [file for folder in ("tests", "benchmarks") for file in (ROOT / folder).rglob("*.py")]
    return [file for file in found if file.parent != drivers]


def test_the_service_declares_what_it_imports_and_imports_what_it_declares() -> None:
    declared = {name_of(each) for each in (*SERVICE["dependencies"], *optional())}
    assert distributions(of_the_service()) - declared == set()
    assert declared - distributions(of_the_service()) - set(WITHOUT_IMPORT) == set()


def test_tests_and_benchmarks_do_too() -> None:
    always = [*SERVICE["dependencies"], *optional()]
    declared, extra = ({name_of(each) for each in part} for part in (always, dev()))
    assert distributions(of_tests()) - declared - extra - client_dependencies() <= {"ehr-d3pm-client"}
    assert extra - distributions(of_tests()) - set(WITHOUT_IMPORT) == set()


def test_the_client_does_too() -> None:
    optional = {"pandas", "polars"}  # imported by methods that are called so, if they are installed
    assert client_dependencies() == distributions(of_the_client()) - {"ehr-d3pm-client"} - optional


def test_nothing_is_declared_twice() -> None:
    extras = [each for part in SERVICE["optional-dependencies"].values() for each in part]
    names = [name_of(each) for each in (*SERVICE["dependencies"], *extras)]
    assert sorted(names) == sorted(set(names))


def test_what_needs_no_import_is_still_declared() -> None:
    extras = [each for part in SERVICE["optional-dependencies"].values() for each in part]
    assert set(WITHOUT_IMPORT) <= {name_of(each) for each in (*SERVICE["dependencies"], *extras)}


def optional() -> list[str]:
    return [each for extra in OPTIONAL for each in SERVICE["optional-dependencies"][extra]]


def dev() -> list[str]:
    return list(SERVICE["optional-dependencies"]["dev"])


def client_dependencies() -> set[str]:
    file = ROOT / "client" / "pyproject.toml"
    declared = tomllib.loads(file.read_text())["project"]["dependencies"] if file.exists() else []
    return {name_of(each) for each in declared}


def pins(lock: str) -> dict[str, list[str]]:
    """The pinned requirements of a lock file by name, each with its marker; every one has a hash."""
    found: dict[str, list[str]] = {}
    entries = re.findall(r"^([a-z0-9][^\s]*==[^\\\n]*?) \\\n((?:    --hash=.*\n?)+)", (ROOT / lock).read_text(), re.M)
    for requirement, _ in entries:
        found.setdefault(name_of(requirement), []).append(requirement)
    unpinned = [line for line in (ROOT / lock).read_text().splitlines() if re.match(r"[^\s#]", line)]
    assert len(unpinned) == len(entries)
    return found


@pytest.mark.parametrize(("lock", "extras"), [("requirements.lock", ("dev",)), ("requirements-runtime.lock", ())])
def test_the_lock_pins_every_dependency(lock: str, extras: tuple[str, ...]) -> None:
    declared = {*map(name_of, SERVICE["dependencies"]), *client_dependencies()}
    for extra in extras:
        declared |= {name_of(each) for each in SERVICE["optional-dependencies"][extra]}
    assert declared - set(pins(lock)) <= NOT_IN_THE_LOCK, "run `make lock`"
    assert not NOT_IN_THE_LOCK & set(pins(lock))
    assert not [name for name in pins(lock) if name.startswith(("nvidia-", "cuda-", "triton"))]


def versions(pinned: list[str]) -> set[str]:
    """Without markers: what tests alone need may need it on more platforms."""
    return {each.partition(";")[0].strip() for each in pinned}


def test_the_image_has_the_versions_that_are_tested() -> None:
    tested, runtime = pins("requirements.lock"), pins("requirements-runtime.lock")
    assert {
        name: pinned for name, pinned in runtime.items() if versions(tested.get(name, [])) != versions(pinned)
    } == {}
