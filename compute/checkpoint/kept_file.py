"""Files of state that never change: they exist as long as an object refers to them."""

import errno
import os
import shutil
from pathlib import Path
from weakref import finalize


class KeptFile:
    """A complete file, which is removed when nobody refers to it any more.

    So who captured it for a checkpoint can read it, even if its owner has replaced it since.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        finalize(self, _remove, path).atexit = False  # the directory is removed as a whole


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)  # Hadoop's checksums


def link_or_copy(path: Path, source: Path) -> None:
    """Let `path` be a file with the content of `source`, which does not change; raises OSError."""
    try:
        os.link(source, path)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK):
            raise
        shutil.copyfile(source, path)
