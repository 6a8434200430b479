"""The import contract: a module may import its siblings and lower floors, nothing above."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("orchestrator", "judges", "policies", "estimators")

# Each room with the rooms of ours it may import besides itself, and what outsiders it must not.
PURE = {"anyio", "httpx", "httpx2", "openai", "anthropic", "google", "sqlite3", "time", "random"}
ROOMS = {
    "orchestrator.core": (set(), PURE | {"pydantic", "msgspec", "scipy"}),
    "judges": ({"orchestrator.core"}, {"sqlite3", "random"}),
    "policies": ({"orchestrator.core", "estimators"}, PURE),
    "estimators": ({"orchestrator.core"}, PURE),
    "orchestrator.store": ({"orchestrator.core"}, {"pydantic"}),
    "orchestrator.engine": ({"orchestrator.core"}, {"pydantic", "sqlite3", "msgspec"}),
    "orchestrator.report": ({"orchestrator.core"}, {"anyio", "sqlite3", "pydantic"}),
}
ABOVE = (
    "orchestrator.cli",
    "orchestrator.experiments",
    "orchestrator.__main__",
    "orchestrator.testing",
)
ONLY_IN = {
    "sqlite3": {"orchestrator.store.sqlite"},
    "tenacity": {"orchestrator.engine.attempts"},
    "ruamel": {"orchestrator.document"},
    "typer": {"orchestrator.cli"},
    "distributed": {"orchestrator.experiments"},
    "vl_convert": {"orchestrator.experiments"},
}


def modules():
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            yield name.removesuffix(".__init__"), path


def imports(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module
            case _:
                pass


def room_of(module):
    rooms = [room for room in ROOMS if module == room or module.startswith(room + ".")]
    return max(rooms, key=len, default=None)


def is_ours(name):
    return name.split(".")[0] in PACKAGES


@pytest.mark.parametrize(("name", "path"), list(modules()), ids=str)
def test_imports_go_down(name, path):
    room = room_of(name)
    for imported in imports(path):
        for library, homes in ONLY_IN.items():
            if imported.split(".")[0] == library:
                assert name in homes or name.startswith(tuple(f"{home}." for home in homes)), (
                    f"{name} imports {imported}"
                )
        if imported.startswith(ABOVE):
            assert name.startswith(ABOVE), (
                f"{name} imports {imported}, which stands above everything"
            )
        if room is None:
            continue
        allowed, barred = ROOMS[room]
        if is_ours(imported):
            target = room_of(imported)
            assert target == room or target in allowed, f"{name} imports {imported}"
        else:
            assert imported.split(".")[0] not in barred, f"{name} imports {imported}"


def test_core_knows_no_library_but_numpy():
    """Floor 0 is standard library and numpy."""
    for name, path in modules():
        if room_of(name) == "orchestrator.core":
            for imported in imports(path):
                top = imported.split(".")[0]
                assert is_ours(imported) or top == "numpy" or top in sys.stdlib_module_names
