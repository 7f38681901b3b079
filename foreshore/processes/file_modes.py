"""Modes of files: private by default, and those of the operator's umask where users ask for files.

    keep_private()          at the start of each command: what is made from now on is for us alone
    secure(directory, ...)  repairs a directory that was made before; refuses another user's
    share(path)             gives a file that a user asked for the mode that it would have had

A umask belongs to the process and not to a thread, so what users ask for gets its mode afterwards.
Processes that are started later inherit the umask.
"""

import errno
import logging
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from foreshore.errors import ObjectNotInPrerequisiteState

logger = logging.getLogger(__name__)

PRIVATE, GROUP = 0o077, 0o027  # umasks
SECRETS = ".key"  # the suffix of files that the group may not read either

_operators = -1  # the umask before `keep_private`, -1 where it was not called


def keep_private(*, group: bool = False) -> None:
    """Make files that only this user can read from now on; with `group` its group can, too."""
    global _operators
    before = os.umask(GROUP if group else PRIVATE)
    if _operators == -1:
        _operators = before


def operators_umask() -> int:
    """Return the umask with which the program was started, -1 where it is the current one."""
    return _operators


def share(*paths: Path) -> None:
    """Give files and directories of this process the modes of the operator's umask."""
    if _operators == -1:
        return
    for path in paths:
        is_directory = stat.S_ISDIR(path.lstat().st_mode)
        path.chmod((0o777 if is_directory else 0o666) & ~_operators)


def share_below(directory: Path) -> None:
    """Share a directory that this process has made, with all that is in it."""
    if _operators == -1:
        return
    for folder, _, files in os.walk(directory):
        share(Path(folder), *(Path(folder, name) for name in files))


def share_new(directory: Path) -> None:
    """Share the private files of a directory into which a user has let this process write."""
    if _operators == -1:
        return
    with os.scandir(directory) as entries:
        for entry in entries:
            found = entry.stat(follow_symlinks=False)
            is_ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
            if is_ours and not found.st_mode & PRIVATE:
                share(Path(entry.path))


def make_shared(directory: Path) -> None:
    """Make a directory and its parents, where they are missing, with the operator's umask."""
    if not directory.is_dir():
        make_shared(directory.parent)
        directory.mkdir(exist_ok=True)
        share(directory)


def can_share_links() -> bool:
    """Whether a link to a private file has the mode that a file for a user has."""
    return _operators == -1 or not PRIVATE & ~_operators


def is_for_group(directory: Path) -> bool:
    """Whether a directory was made for its owner and the group, and nobody else."""
    mode = directory.stat().st_mode
    return mode & 0o050 == 0o050 and not mode & GROUP


def check_owner(directory: Path, what: str = "data directory") -> None:
    """Raise ObjectNotInPrerequisiteState if a directory belongs to another user."""
    if directory.stat().st_uid != os.geteuid():
        raise ObjectNotInPrerequisiteState(
            f'{what} "{directory}" has wrong ownership',
            hint=f"The program must be started by the user that owns the {what}.",
        )


def check_reader(directory: Path) -> None:
    """Raise ObjectNotInPrerequisiteState unless a data directory is ours, or for a group of ours.

    What another user has made is not to be trusted, whatever root can read.
    """
    found = directory.stat()
    if not is_for_group(directory) or found.st_gid not in {os.getegid(), *os.getgroups()}:
        check_owner(directory)


def secure(directory: Path, *, group: bool = False, what: str = "data directory") -> None:
    """Take a directory and all that is in it away from other users, and log if there was need.

    With `group` the group may read all but keys. Symbolic links are left, and files of other users:
    nobody gets to them through the directory. Raises ObjectNotInPrerequisiteState if the directory
    belongs to another user.
    """
    check_owner(directory, what)
    changed = _secure([directory], group=group)  # first, so that nobody exchanges what is inside
    for folder, folders, files in os.walk(directory, onerror=_note):
        changed += _secure((Path(folder, name) for name in (*folders, *files)), group=group)
    _log(what, directory, changed, group=group)


def secure_new(directory: Path, key: str, *, group: bool = False) -> None:
    """Secure a data directory that has no data yet, and the file of a key in it.

    What else is there may be somebody's work, and keeps its modes. Raises as `secure` does.
    """
    check_owner(directory)
    changed = _secure([directory, directory / key], group=group)
    _log("data directory", directory, changed, group=group)


def secure_own(path: Path, *, group: bool = False) -> None:
    """Secure a store's file or directory, unless it belongs to another user, which is logged."""
    if path.stat().st_uid != os.geteuid():
        logger.warning('"%s" belongs to another user, who can read what is stored there', path)
    elif path.is_dir():
        secure(path, group=group, what="directory")
    else:
        _log("file", path, _secure([path], group=group), group=group)


def _log(what: str, path: Path, changed: int, *, group: bool) -> None:
    if changed:
        users = "users outside of its group" if group else "other users"
        logger.warning('%s "%s" was open to %s, %d modes changed', what, path, users, changed)


def open_to_others(directory: Path, *, group: bool = False) -> Path | None:
    """Return a file or directory that others can use, None if there is none."""
    mask = GROUP if group else PRIVATE
    for path in _walk(directory):
        with suppress(FileNotFoundError):  # a server may have removed it meanwhile
            mode = path.lstat().st_mode
            if not stat.S_ISLNK(mode) and mode & mask:
                return path
    return None


def _walk(directory: Path) -> Iterator[Path]:
    """Yield a directory and all paths in it."""
    yield directory
    for folder, folders, files in os.walk(directory):
        for name in (*folders, *files):
            yield Path(folder, name)


def _secure(paths: Iterable[Path], *, group: bool) -> int:
    """Set the modes of paths; return how many were open to others."""
    opened = 0
    for path in paths:
        try:
            found = path.lstat().st_mode
            if stat.S_ISLNK(found):
                continue
            mode = stat.S_IMODE(found)
            for_group = group and path.suffix != SECRETS
            wanted = mode & ~(GROUP if for_group else PRIVATE)
            if for_group:
                wanted |= (mode & 0o500) >> 3
            if wanted != mode:
                path.chmod(wanted)
                opened += bool(mode & (GROUP if group else PRIVATE))
        except FileNotFoundError:  # another process has removed it
            continue
        except OSError as error:
            _note(error)
    return opened


def _note(error: OSError) -> None:
    if error.errno != errno.ENOENT:
        logger.warning("a mode could not be changed: %s", error)
