"""No form of a statement enters many more functions than it did when that was last agreed to."""

import os
from pathlib import Path

import uvloop

from tests.statement_calls import FORMS, measure

GOLDEN = Path(__file__).with_name("statement_calls.txt")
MORE = 1.2  # a fifth more is a new way


def test_each_form_enters_as_many_functions_as_before(tmp_path: Path) -> None:
    found = {
        name: calls.total() for name, calls in uvloop.run(measure(list(FORMS), tmp_path)).items()
    }
    if os.environ.get("GOLDEN") == "rewrite":
        GOLDEN.write_text("".join(f"{count:5} {name}\n" for name, count in found.items()))
    lines = (line.strip().split(" ", 1) for line in GOLDEN.read_text().splitlines())
    agreed = {name: int(count) for count, name in lines}
    assert found.keys() == agreed.keys()
    risen = {name: (agreed[name], n) for name, n in found.items() if n > MORE * agreed[name]}
    assert not risen, "forms that enter more functions; GOLDEN=rewrite once that is meant"
