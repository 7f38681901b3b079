"""No form of a statement enters many more functions than it did when that was last agreed to."""

import os
from collections.abc import Sequence
from pathlib import Path

import uvloop

from tests.statement_calls import ALL, measure

GOLDEN = Path(__file__).with_name("statement_calls.txt")
MORE, LESS = 1.2, 0.7  # a fifth more is a new way; much less is to be agreed to
AGAIN = 4  # measures of what enters more: a busy machine has other work between its runs


def counted(names: Sequence[str], directory: Path) -> dict[str, int]:
    found = uvloop.run(measure(names, directory))
    return {name: calls.total() for name, calls in found.items()}


def test_each_form_enters_as_many_functions_as_before(tmp_path: Path) -> None:
    found = counted(ALL, tmp_path / "all")
    if os.environ.get("GOLDEN") == "rewrite":
        GOLDEN.write_text("".join(f"{count:5} {name}\n" for name, count in found.items()))
    lines = (line.strip().split(" ", 1) for line in GOLDEN.read_text().splitlines())
    agreed = {name: int(count) for count, name in lines}
    assert found.keys() == agreed.keys()
    for number in range(AGAIN):
        more = [name for name, count in found.items() if count > MORE * agreed[name]]
        if not more:
            break
        for name, count in counted(more, tmp_path / str(number)).items():
            found[name] = min(count, found[name])
    others = {
        name: (agreed[name], count)
        for name, count in found.items()
        if not LESS * agreed[name] <= count <= MORE * agreed[name]
    }
    assert not others, "forms that enter other functions; GOLDEN=rewrite once that is meant"
