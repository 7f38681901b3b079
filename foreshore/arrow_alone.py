"""Arrow without pandas: `use_arrow_alone()` before Arrow converts anything.

Arrow imports pandas, if it is installed, when it first makes an array or a scalar, to recognize its
objects. We have none, and PySpark, for which it is installed, imports it by itself. The import
takes 0.4 s of processor time and 36 MB in each process.
"""

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec

import pyarrow as pa


class _Missing(MetaPathFinder):
    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("Arrow does without it", name=fullname)
        return None


def use_arrow_alone() -> None:
    """Let Arrow look for pandas, and not find it, unless this process has it already."""
    if "pandas" not in sys.modules:
        missing = _Missing()
        sys.meta_path.insert(0, missing)
        try:
            pa.scalar(None)
        finally:
            sys.meta_path.remove(missing)
