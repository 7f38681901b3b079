"""The order among the rooms of a layer, which are its folders and the files at its root.

Rooms that import each other, over others or not, are a circle: none of them can be read, tested or
replaced without the rest. Imports for types count, so there is none at run time either. Within a
folder of a layer, the folders in it and all files beside them, as one room, are in an order, too.
A few files may import each other, in a layer whose rooms do not.
"""

import re
from collections.abc import Collection
from pathlib import Path

import pytest

from tests.imports import LAYERS, ROOT, files_of, imported, module_name

MOST_IN_A_KNOT = 10  # files of a layer that import each other, over others or not
# The circles that are left, with all of their rooms. Take away what you have cut; add nothing.
REMAINING: dict[str, list[set[str]]] = {
    "compute/flow": [{".", "operators"}],
    "foreshore/expr": [{".", "functions"}],
    "server/http": [{".", "mcp"}],
    "sql/bind/definitions": [{".", "sinks", "sources"}],
}


def _room(folder: Path, file: Path) -> str:
    """Return the room of a file in a layer, or in a folder of one, whose own files are one."""
    inner = file.relative_to(folder).parts
    return inner[0] if len(inner) > 1 or folder.parent == ROOT else "."


def _imports_between_rooms(folder: Path) -> dict[str, set[str]]:
    """Return for each room of a layer or folder the others that its files import."""
    files = [file for file in files_of(_layer(folder)) if file.is_relative_to(folder)]
    files = [file for file in files if file != folder / "__init__.py"]  # it imports nothing
    rooms = {module_name(file): _room(folder, file) for file in files}
    between: dict[str, set[str]] = {room: set() for room in rooms.values()}
    for file in files:
        room = _room(folder, file)
        between[room] |= {rooms[module] for module in _imports_of(file, rooms.keys())} - {room}
    return between


def _imports_of(file: Path, modules: Collection[str]) -> set[str]:
    """Return which of `modules` a file imports, or names of."""
    # A name is a module's, or of one; a package's own name is that of its `__init__`.
    found = ((name, name.rpartition(".")[0]) for name in imported(file))
    inside = (next((m for m in pair if m in modules), None) for pair in found)
    return {module for module in inside if module is not None}


def _layer(folder: Path) -> str:
    return folder.relative_to(ROOT).parts[0]


def _folders() -> list[str]:
    """Return the folders of layers that have folders in them."""
    inits = [file.parent for layer in LAYERS for file in files_of(layer) if file.stem == "__init__"]
    parents = {folder.parent for folder in inits} - {ROOT, *(ROOT / layer for layer in LAYERS)}
    return sorted(str(folder.relative_to(ROOT)) for folder in parents)


def _circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Return the sets of rooms each of which reaches all others of its set."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        reached[start], ahead = set(), [start]
        while ahead:
            new = graph.get(ahead.pop(), set()) - reached[start]
            reached[start] |= new
            ahead += new
    together = {
        frozenset(b for b in reached[a] if a in reached.get(b, ()))
        for a in reached
        if a in reached[a]
    }
    return [set(circle) for circle in sorted(together, key=sorted)]


@pytest.mark.parametrize("folder", [*LAYERS, *_folders()])
def test_rooms_of_a_folder_form_no_circle(folder: str) -> None:
    assert _circles(_imports_between_rooms(ROOT / folder)) == REMAINING.get(folder, [])


@pytest.mark.parametrize("layer", sorted({*LAYERS} - REMAINING.keys()))
def test_few_files_of_a_layer_import_each_other(layer: str) -> None:
    modules = {module_name(file): file for file in files_of(layer)}
    graph = {name: _imports_of(file, modules) - {name} for name, file in modules.items()}
    assert [knot for knot in _circles(graph) if len(knot) > MOST_IN_A_KNOT] == []


def test_what_holds_everything_is_named_where_it_is_built() -> None:
    """Others name protocols of adapter/services/, each with what they use."""
    named: dict[str, set[str]] = {
        "foreshore.adapter.coordinator.coordinator.Coordinator": {
            "coordinator",
            "session",
            "environment.py",
        },
        "foreshore.adapter.session.session.Session": {"session", "environment.py"},
        "foreshore.adapter.environment.Environment": set(),  # by the server alone
    }
    for file in files_of("adapter"):
        for name in named.keys() & set(imported(file)):
            assert _room(ROOT / "adapter", file) in named[name], f"{file} names {name}"


def test_circles_that_are_left_are_of_folders_that_are_there() -> None:
    assert REMAINING.keys() <= {*LAYERS, *_folders()}


def test_rooms_of_compute_are_in_the_order_of_their_page() -> None:
    page = (ROOT / "docs" / "compute.md").read_text()
    _, _, table = page.partition("| folder or file | contents |")
    rows = [line.split("|")[1] for line in table.partition("\n\n")[0].splitlines()[2:]]
    order = [name.rstrip("/") for row in rows for name in re.findall(r"`([^`]+)`", row)]
    between = _imports_between_rooms(ROOT / "compute")
    assert sorted(order) == sorted(between)
    for at, room in enumerate(order):
        assert between[room] <= set(order[:at]), room


def test_a_circle_over_several_rooms_is_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": {"f"}, "f": {"e"}}
    assert _circles(graph) == [{"a", "b", "c"}, {"e", "f"}]
