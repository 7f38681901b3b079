"""The Python blocks of README.md and docs/, as programs that a type checker reads.

The blocks of a page are one program. PRELUDES has what a page takes as given, such as an open
session; a page that is not there stands alone.
"""

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from tests.docs.pages import DOCS, ROOT

LAYERS = ("server", "adapter", "catalog", "sql", "compute", "storage")
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

_GIVEN = "from typing import Any\n\n\ndef given() -> Any: ...\n\n\n"
PRELUDES = {
    "README.md": "import foreshore",
    "docs/embedded.md": "import foreshore",
    "docs/http.md": "import httpx\nimport pyarrow.ipc\nurl: str = given()\nARROW: str = given()",
    "docs/lake.md": "spark: Any = given()\nmerge: Any = given()\nplace: str = given()",
    "docs/python-functions.md": "import bisect\nimport statistics",
    "docs/sources.md": "pages: Any = given()\nask: Any = given()",
    "docs/subscribe.md": "import psycopg\napply: Any = given()",
    "docs/catalog.md": """
from foreshore.catalog.catalog import Catalog
from foreshore.catalog.durable import difference
from foreshore.catalog.item import Database
catalog: Catalog = given()
database: Database = given()
owner: Any = given()
time: int = given()
planned: int = given()
""",
    "docs/compute.md": """
from foreshore.compute.controller.controller import ComputeController
compute: ComputeController = given()
description: Any = given()
request: Any = given()
""",
    "docs/storage.md": """
from pathlib import Path
from foreshore.storage.controller import StorageController
from foreshore.storage.record import ShardWrite
path: Path = given()
clock: Any = given()
id: Any = given()
schema: Any = given()
updates: Any = given()
""",
}


def programs() -> Iterator[tuple[str, str]]:
    """Yield each page that has Python blocks, from the root, with the text of its program."""
    for page in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]:
        blocks = _BLOCK.findall(page.read_text())
        if blocks:
            name = str(page.relative_to(ROOT))
            prelude = f"{_GIVEN}{PRELUDES.get(name, '')}"
            yield name, "\n".join([prelude, *map(_module, enumerate(blocks))])


def _module(block: tuple[int, str]) -> str:
    """Return a block as it is, or in a function if it awaits."""
    number, text = block
    try:
        compile(text, "block", "exec")
    except SyntaxError:
        return f"async def block_{number}() -> None:\n{textwrap.indent(text, '    ')}"
    return text


def lay_out(folder: Path) -> None:
    """Make the package importable for type checkers, which read no import hooks."""
    package = folder / "foreshore"
    package.mkdir(parents=True)
    for each in [*(ROOT / "foreshore").iterdir(), *(ROOT / layer for layer in LAYERS)]:
        (package / each.name).symlink_to(each)
