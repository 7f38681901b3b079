"""The package as an archive for executors, whose Python has its dependencies but not itself.

They are to have the same versions of Python, pyarrow, numpy and the rest, as Spark's own Python
workers require it anyway: in an image, or in a packed environment (`spark.archives`).
"""

import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

NAME = "foreshore.zip"
LAYERS = ("adapter", "catalog", "compute", "server", "sql", "storage")


def write_package(path: Path) -> Path:
    """Write the archive of this package's modules and return its path."""
    roots = {"foreshore": _directory("foreshore")}
    for layer in LAYERS:
        roots[f"foreshore/{layer}"] = _directory(f"foreshore.{layer}")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        written = set()
        for inside, root in roots.items():
            for file in sorted([*root.rglob("*.py"), *root.rglob("*.tsv")]):
                name = f"{inside}/{file.relative_to(root).as_posix()}"
                if name not in written:  # an installed package has its layers within
                    written.add(name)
                    archive.write(file, name)
    return path


def _directory(module: str) -> Path:
    found = find_spec(module)
    assert found is not None, module
    assert found.submodule_search_locations, module
    return Path(found.submodule_search_locations[0])


def add_package(context: Any, scratch: Path) -> None:
    """Let the executors of a SparkContext import this package."""
    before = list(sys.path)
    context.addPyFile(str(write_package(scratch / NAME)))
    sys.path[:] = before  # this process has the modules themselves
