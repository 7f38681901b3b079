"""The build: setuptools, and in wheels the kernels of views, compiled (docs/engine.md).

A wheel of Linux on x86-64 has the kernels for the Python that builds it. It can be installed
everywhere: elsewhere they are compiled after the installation.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)
from setuptools.command.build_py import build_py

__all__ = [
    "BuildPy",
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

COMPILER = ["numba>=0.61", "numpy>=2.0"]


def get_requires_for_build_wheel(config_settings: Mapping[str, Any] | None = None) -> list[str]:
    """Return what the build needs beside setuptools: numba, of the version that is installed."""
    return [*build_meta.get_requires_for_build_wheel(config_settings), *COMPILER]


class BuildPy(build_py):
    """Lays the package out, then compiles its kernels."""

    def run(self) -> None:
        """Build; an editable installation has its kernels beside the sources, by `make setup`."""
        super().run()
        if not self.editable_mode:
            command = [sys.executable, "-P", "-m", "foreshore.compute.flow.ship"]
            # pip itself lets the build find numba by PYTHONPATH.
            paths = [str(Path(self.build_lib).absolute()), os.environ.get("PYTHONPATH", "")]
            path = os.pathsep.join(filter(None, paths))
            # Its modules are those of the wheel, which must not get their bytecode.
            given = {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
            subprocess.run(command, env=os.environ | given, check=True)
