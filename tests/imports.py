"""What the files of the project import, and by which name each is imported.

Imports under TYPE_CHECKING and within functions count as others do. A file is read once, and its
imports are found by a regular expression: a parse of all files would take seconds in each run.
"""

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
LAYERS = ("storage", "sql", "compute", "catalog", "adapter", "server", "foreshore")
# ruff allows neither two statements on a line nor two modules in one `import`.
_IMPORT = re.compile(
    r"""^[ \t]*(?: from [ ] ([\w.]+) [ ] import [ ] (?: \( ((?: [^)#] | \#[^\n]* )*) \) | ([^\n(]+) )
             | import [ ] ([\w.]+) (?: [ ]as[ ]\w+ )? [ ]* (?: \#[^\n]* )? $ )""",
    re.MULTILINE | re.VERBOSE,
)
_COMMENT = re.compile(r"#[^\n]*")


@cache
def imported(file: Path) -> tuple[str, ...]:
    """Return the dotted name of everything that `file` imports."""
    names: list[str] = []
    for module, several, single, whole in _IMPORT.findall(file.read_text()):
        aliases = _COMMENT.sub("", several or single).split(",")
        names += [f"{module}.{alias.split()[0]}" for alias in aliases if alias.strip()]
        names += [whole] if whole else []
    return tuple(names)


@cache
def files_of(layer: str) -> tuple[Path, ...]:
    """Return the files of code in the layer, in the order of their paths."""
    return tuple(sorted((ROOT / layer).rglob("*.py")))


def module_name(file: Path) -> str:
    """Return the name by which `file` is imported: storage/ is `foreshore.storage`, and so on."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == "foreshore" else ("foreshore", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
