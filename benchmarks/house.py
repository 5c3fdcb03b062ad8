"""The size and shape of the source, counted from the source itself: no timing, the same everywhere.

python -m benchmarks.house --json FILE

* `lines` of all *.py files of PACKAGES; the longest function and file of those that are not in TABLES.
* `places_for_a_generator`, `places_for_a_metric`: files that know one by name, the most over all of them. A generator
  or metric is a module-level object with a name in the packages of REGISTERED. A file knows it if it has its name as
  a string or uses the identifier it is defined as. Files of its own (where it is defined, and those that are called
  like it or like that file) do not count, nor do tests, documents and benchmarks.
* `condition_classes`: classes with Condition in their name that are no errors.
"""

import ast
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks._harness import Figures, options, show

ROOT = Path(__file__).parents[1]
PACKAGES = ("app", "client", "ehr", "model_store", "runtime", "worker")
# Data in the form of Python: as long as what it lists.
TABLES = (
    "model_store/migrations/",
    "model_store/tables.py",
    "worker/engine/population/catalogue.py",
)
# kind -> (packages whose objects with a name are one, an attribute that tells them from others)
REGISTERED = {
    "generator": (("ehr.generators", "worker.engine.generators"), "methods"),
    "metric": (("worker.engine.metrics",), "direction"),
}
# Names that are words of their own: as strings they do not mean the generator or metric.
WORDS = {
    "independent": "also the yardstick that every metric is compared with",
}
SHOWN = 10


@dataclass(frozen=True)
class Function:
    """One function of the source, with the lines from `def` to its end."""

    place: str
    lines: int


@dataclass(frozen=True)
class Known:
    """A generator or metric, and the files besides its own that know it."""

    name: str
    places: tuple[str, ...]


@cache
def sources(root: Path = ROOT) -> dict[str, str]:
    """The text of every file of the packages by its path."""
    files = (file for package in PACKAGES for file in sorted((root / package).rglob("*.py")))
    return {file.relative_to(root).as_posix(): file.read_text(encoding="utf-8") for file in files}


@cache
def trees() -> dict[str, ast.Module]:
    return {path: ast.parse(text) for path, text in sources().items()}


def lines_by_package() -> dict[str, int]:
    """All lines, blank ones and comments too."""
    counted = {package: 0 for package in PACKAGES}
    for path, text in sources().items():
        counted[path.split("/")[0]] += len(text.splitlines())
    return counted


def files() -> list[tuple[str, int]]:
    """Files outside of tables with their lines, the longest first."""
    found = [(path, len(text.splitlines())) for path, text in sources().items() if not path.startswith(TABLES)]
    return sorted(found, key=lambda each: -each[1])


def functions() -> list[Function]:
    """Functions outside of tables, the longest first."""
    found = [
        Function(f"{path}:{node.lineno} {node.name}", (node.end_lineno or node.lineno) - node.lineno + 1)
        for path, tree in trees().items()
        if not path.startswith(TABLES)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return sorted(found, key=lambda each: -each.lines)


def readme_words() -> int:
    return len((ROOT / "README.md").read_text(encoding="utf-8").split())


def condition_classes() -> list[str]:
    """`file:line name` of each."""
    return [
        f"{path}:{node.lineno} {node.name}"
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and "Condition" in node.name and not node.name.endswith("Error")
    ]


# ---- how many places know a generator or metric


@cache
def known(kind: str) -> list[Known]:
    """Every generator or metric with the files that know it, the most first."""
    packages, attribute = REGISTERED[kind]
    defined: dict[str, set[tuple[str, str]]] = {}  # name -> (file, identifier)
    for module in _modules(packages):
        path = Path(str(module.__file__)).relative_to(ROOT).as_posix()
        for identifier in _defined_in(trees()[path]):
            value: Any = getattr(module, identifier, None)
            if isinstance(name := getattr(value, "name", None), str) and hasattr(value, attribute):
                defined.setdefault(name, set()).add((path, identifier))
    found = [Known(name, tuple(_places(name, places))) for name, places in defined.items()]
    return sorted(found, key=lambda each: (-len(each.places), each.name))


def _modules(packages: tuple[str, ...]) -> Iterator[ModuleType]:
    for package in packages:
        top = import_module(package)
        yield top
        for info in pkgutil.walk_packages(top.__path__, f"{package}."):
            yield import_module(info.name)


def _defined_in(tree: ast.Module) -> Iterator[str]:
    """Classes and constants at the module's level."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def _places(name: str, defined: set[tuple[str, str]]) -> Iterator[str]:
    own = {name.replace("-", "_"), *(Path(path).stem for path, _ in defined)}
    for path, (strings, identifiers) in _mentions().items():
        by_name = name in strings and name not in WORDS
        if Path(path).stem not in own and (by_name or identifiers.intersection(each for _, each in defined)):
            yield path


@cache
def _mentions() -> dict[str, tuple[set[str], set[str]]]:
    """The strings and the identifiers of every file."""
    found: dict[str, tuple[set[str], set[str]]] = {path: (set(), set()) for path in trees()}
    for path, tree in trees().items():
        strings, identifiers = found[path]
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                strings.add(node.value)
            elif isinstance(node, ast.Name | ast.Attribute | ast.alias):
                identifiers.add(_identifier(node))
    return found


def _identifier(node: ast.Name | ast.Attribute | ast.alias) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else node.name


# ---- figures


def figures() -> Figures:
    """All figures of the source as it is."""
    found, without = Figures(), "outside of tables"
    found.add("house.lines", sum(lines_by_package().values()), f"lines in {', '.join(PACKAGES)}")
    found.add("house.longest_function", functions()[0].lines, f"lines, {without}")
    found.add("house.longest_file", files()[0][1], f"lines, {without}")
    found.add("house.readme_words", readme_words(), "words")
    for kind in REGISTERED:
        found.add(f"house.places_for_a_{kind}", len(known(kind)[0].places), "files besides its own")
    found.add("house.condition_classes", len(condition_classes()), "classes")
    return found


def main() -> None:
    arguments = options(__doc__ or "").parse_args()
    show("lines", ["package", "lines"], [[name, f"{lines:,}"] for name, lines in lines_by_package().items()])
    show("longest functions", ["function", "lines"], [[each.place, str(each.lines)] for each in functions()[:SHOWN]])
    show("longest files", ["file", "lines"], [[path, str(lines)] for path, lines in files()[:SHOWN]])
    show("not counted as long: tables", ["file or folder"], [[path] for path in TABLES])
    for kind in REGISTERED:
        rows = [[each.name, str(len(each.places)), "\n".join(each.places)] for each in known(kind)]
        show(f"files that know a {kind} by name", [kind, "files", "besides its own"], rows)
    show("names that are words: not counted as strings", ["name", "reason"], [[*word] for word in WORDS.items()])
    show("condition classes", ["class"], [[place] for place in condition_classes()])
    figures().finish(arguments.json)


if __name__ == "__main__":
    main()
