"""Kernels that a wheel brings along, compiled for every processor with AVX2 (x86-64-v3).

    shipped/cpython-311-numba-0.68.1-Linux-x86_64-v3/rows.hash_keys

A file has the digest of the kernel's sources and types, then the code as numba's cache has it
(`code_files.py`). It is used if the folder's name is that of this process and the digest is right,
and taken for missing if it is damaged. So a wheel fits any
machine: where nothing is shipped for it, kernels are compiled.
"""

import hashlib
import pickle
import platform
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from foreshore.compute.flow.kernels.code_files import code_in, has_code, sealed

FOLDER = Path(__file__).with_name("shipped")
MACHINE = "x86_64"
TARGET = "x86-64-v3"
FEATURES = ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "popcnt")
# Variables of numba by which a process compiles for this target.
ENVIRONMENT = {
    "NUMBA_CPU_NAME": TARGET,
    "NUMBA_CPU_FEATURES": ",".join(f"+{each}" for each in FEATURES),
}
_DIGEST_BYTES = 32


@cache
def folder_name() -> str | None:
    """Return the name of the folder that this process can use, None if its processor cannot."""
    import numba
    from llvmlite import binding

    if platform.machine() != MACHINE:
        return None
    features = binding.get_host_cpu_features()
    if not all(features.get(each) for each in FEATURES):
        return None
    python = sys.implementation.cache_tag
    return f"{python}-numba-{numba.__version__}-{platform.system()}-{MACHINE}-v3"


def has(name: str, stamp: object, types: Sequence[Any]) -> bool:
    """Whether the code of a kernel is there, for its sources' stamp and its arguments' types."""
    path = _path(name)
    if path is None or not path.exists():
        return False
    with path.open("rb") as file:
        if file.read(_DIGEST_BYTES) != _digest(stamp, types):
            return False
    return has_code(path, _DIGEST_BYTES)


def load(name: str, stamp: object, types: Sequence[Any]) -> Any:
    """Return the code of a kernel as numba's cache gives it, None if it is not there whole."""
    path = _path(name)
    if path is None or not has(name, stamp, types):
        return None
    code = code_in(path.read_bytes()[_DIGEST_BYTES:])
    return None if code is None else pickle.loads(code)


def save(folder: Path, name: str, stamp: object, types: Sequence[Any], code: bytes) -> None:
    """Write the code of a kernel, as numba's cache writes it, for `load`."""
    (folder / name).write_bytes(_digest(stamp, types) + sealed(code))


def _path(name: str) -> Path | None:
    folder = folder_name()
    return None if folder is None else FOLDER / folder / name


def _digest(stamp: object, types: Sequence[Any]) -> bytes:
    return hashlib.sha256(repr((stamp, *map(str, types))).encode()).digest()
