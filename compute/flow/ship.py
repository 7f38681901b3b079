"""Compiles all kernels for a wheel: `python -m foreshore.compute.flow.ship`.

The build of a wheel runs this over the package that it has laid out (build_backend.py). The folder
`kernels/shipped` beside the sources gets what `kernels/shipped.py` reads.
"""

import os
import shutil
import subprocess
import sys
from tempfile import TemporaryDirectory

from foreshore.compute.flow import warm
from foreshore.compute.flow.kernels import compiled, shipped

INSIDE = "--inside"  # of a process that compiles for the target


def main() -> None:
    """Fill the folder, if the processor can run what is in it."""
    name = shipped.folder_name()
    if INSIDE in sys.argv:
        assert name is not None
        warm.main()
        (shipped.FOLDER / name).mkdir(parents=True)
        compiled.ship(shipped.FOLDER / name)
        return
    shutil.rmtree(shipped.FOLDER, ignore_errors=True)
    if name is None:
        print("no kernels are shipped: this processor is not", shipped.TARGET)
        return
    with TemporaryDirectory() as cache:
        command = [sys.executable, "-P", "-m", "foreshore.compute.flow.ship", INSIDE]
        environment = os.environ | shipped.ENVIRONMENT | {"NUMBA_CACHE_DIR": cache}
        subprocess.run(command, env=environment, check=True)


if __name__ == "__main__":
    main()
