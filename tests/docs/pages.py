"""Pages of docs/reference: their blocks of code, tables and links.

    ```               a synopsis
    ```sql            an example, which is run; a statement with `-- error 22012` behind it fails so
    ```sql skip: why  an example that needs an external system: it is parsed only
    ```text           what the last statement of the example before it returns

Examples of a page run in order, in a database of its own.
"""

import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from foreshore.sql.parse.parse import Statement, parse

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
# These are written by programs from what the code says.
GENERATED = frozenset(("functions", "types", "relations", "settings", "options"))
INDEX = REFERENCE / "README.md"
PAGES = [
    each for each in sorted(REFERENCE.glob("*.md")) if each != INDEX and each.stem not in GENERATED
]

_BLOCK = re.compile(r"^```(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
_ERROR = re.compile(r"[ \t]*;?[ \t]*-- error (?P<code>[0-9A-Z]{5})\b")


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code: what stands behind the opening fence, its text, and where it ends."""

    info: str
    text: str
    start: int
    end: int

    @property
    def is_run(self) -> bool:
        """Whether it is an example that is run."""
        return self.info == "sql"

    @property
    def is_example(self) -> bool:
        """Whether it has statements."""
        return self.info == "sql" or self.info.startswith("sql skip: ")

    @property
    def is_synopsis(self) -> bool:
        """Whether it shows the form of a statement."""
        return not self.info


@dataclass(frozen=True, slots=True)
class Step:
    """A statement of an example, and the SQLSTATE with which it fails; None: it does not."""

    text: str
    error: str | None


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page in order."""
    text = page.read_text()
    return [
        Block(each["info"], each["text"], each.start("text"), each.end("text"))
        for each in _BLOCK.finditer(text)
    ]


def statements(block: Block) -> list[Statement]:
    """Return the statements of an example, parsed."""
    return parse(block.text)


def steps(block: Block) -> list[Step]:
    """Return the statements of an example with the errors that are expected."""
    found = []
    for each in statements(block):
        line = block.text[each.position + len(each.text) :].split("\n", 1)[0]
        expected = _ERROR.match(line)
        found.append(Step(each.text, expected["code"] if expected else None))
    return found


def outputs(page: Path) -> dict[int, Block]:
    """Return the blocks of output, by the number of the example before each."""
    found = blocks(page)
    return {
        number: after
        for number, (before, after) in enumerate(pairwise(found))
        if before.is_run and after.info == "text"
    }


def links(page: Path) -> list[str]:
    """Return the targets of the links of a page, without those in blocks of code."""
    return [each["target"] for each in _LINK.finditer(_BLOCK.sub("", page.read_text()))]


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", _BLOCK.sub("", page.read_text()), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).replace(" ", "-")
        for heading in headings
    }
