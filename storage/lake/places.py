"""Where COPY may read and write files: below the directories and buckets that the operator names.

    --copy-dir /srv/exchange --copy-dir 's3://BUCKET/PREFIX?endpoint=URL&region=NAME'

A URL of a statement is `file:///PATH`, an absolute path, or `s3://BUCKET/KEY`. Directories are
compared after symbolic links have been followed, so a link out of an allowed directory leads
nowhere. Nothing is allowed that is not named, and nothing within the data directory.
"""

import fnmatch
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from foreshore.errors import InsufficientPrivilege, InvalidName, InvalidParameterValue
from foreshore.storage.blob import Blob, FileBlob, open_blob

PATTERN = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class Location:
    """A place within an allowed one: a file, a directory, or a pattern of files."""

    url: str  # as given
    blob: Blob
    root: Path | None  # the allowed directory, None in a bucket
    key: str  # within it; no slash at its ends
    closed: Path | None = None  # the data directory, where files are not found
    bucket: str | None = None  # the allowed place, if that is in a bucket
    # How to read it, as options of `S3Blob`; empty: as the environment of the process says.
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def path(self) -> Path:
        """Return the path of a local place."""
        assert self.root is not None, self.url
        return self.root / self.key

    def files(self, *, is_deep: bool = False) -> list[str]:
        """Return the keys of the files that the URL stands for, sorted.

        That is a file, the files that match a pattern, or those of a directory, whose names do not
        begin with a dot or an underscore. In a pattern, ** is any number of directories. With
        `is_deep` the files in directories below count, too.
        """
        if PATTERN & set(self.key):
            fixed = self.key[: min(self.key.index(c) for c in PATTERN & set(self.key))]
            hidden = _is_deep_data if "**" in self.key.split("/") else _is_data
            wanted = self.key.split("/")
            return sorted(
                key
                for key in self._below(fixed)
                if _matches(key.split("/"), wanted) and hidden(key[fixed.rfind("/") + 1 :])
            )
        if self.root is not None and self.path.is_file():
            return [self.key]
        inside = f"{self.key}/" if self.key else ""
        below = ((key, key[len(inside) :]) for key in self._below(inside))
        if is_deep:
            found = sorted(key for key, rest in below if _is_deep_data(rest))
        else:
            found = sorted(key for key, rest in below if _is_data(rest) and "/" not in rest)
        return found or sorted(key for key in self._below(self.key) if key == self.key)

    def local(self, key: str, scratch: Path) -> Path | None:
        """Return a file as a local one, fetched into `scratch` if need be; None if it is gone."""
        if self.root is not None:
            path = Path(os.path.realpath(self.root / key))
            if not path.is_relative_to(self.root) or _is_below(path, self.closed):
                raise _refused(self.url)
            return path if path.is_file() else None
        path = scratch / key.replace("/", "-")
        return path if self.blob.fetch(key, path) else None

    def check_links(self) -> None:
        """Raise if a link leads out of the directory that is the place."""
        for directory, folders, names in os.walk(self.path):
            for each in (Path(directory, name) for name in (*folders, *names)):
                if each.is_symlink() and not _is_below(Path(os.path.realpath(each)), self.path):
                    raise _refused(self.url)

    def _below(self, prefix: str) -> Iterator[str]:
        if self.root is None:
            yield from (key for key, _ in self.blob.list(prefix))
            return
        start = self.root / (prefix if prefix.endswith("/") else os.path.dirname(prefix))
        for directory, _, names in os.walk(start):
            below = Path(directory).relative_to(self.root).as_posix()
            inside = "" if below == "." else f"{below}/"
            for name in names:
                key = inside + name
                if key.startswith(prefix):
                    yield key


@dataclass(frozen=True, slots=True)
class CopyPlaces:
    """The allowed places, by their URLs or paths."""

    allowed: Sequence[str] = ()
    data_dir: Path | None = None
    blobs: dict[str, Blob] = field(default_factory=dict, compare=False)
    user: str = field(default="COPY", compare=False)  # that errors name

    def as_options(self) -> dict[str, str]:
        """Return the places as texts, for another process; `from_options` is the inverse."""
        data_dir = "" if self.data_dir is None else str(self.data_dir)
        return {"allowed": json.dumps(list(self.allowed)), "data_dir": data_dir}

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> "CopyPlaces":
        """Return the places that `as_options` gave."""
        data_dir = options["data_dir"]
        allowed = tuple(json.loads(options["allowed"]))
        return cls(allowed, Path(data_dir) if data_dir else None, user="a source or sink")

    def find(self, url: str, *, is_pattern: bool = True) -> Location:
        """Return the place that a URL names; `is_pattern`: it may be a pattern of files.

        Raises InsufficientPrivilege if it is not below an allowed one, InvalidName if it is
        relative, InvalidParameterValue if it is of another kind. Looks at directories.
        """
        parts = urlsplit(url)
        if parts.scheme == "s3":
            return self._in_bucket(url)
        if parts.scheme not in ("", "file") or (parts.scheme == "file" and parts.netloc):
            raise InvalidParameterValue(
                f'unrecognized URL "{url}"', hint="Valid are file:///PATH and s3://BUCKET/KEY."
            )
        path = unquote(parts.path) if parts.scheme else url
        if not path.startswith("/"):
            raise InvalidName(
                f"relative path not allowed for {self.user}"
                + (" to file" if self.user == "COPY" else "")
            )
        return self._local(url, path, is_pattern)

    def _local(self, url: str, path: str, is_pattern: bool) -> Location:
        path = path.rstrip("/")
        fixed, rest = _without_pattern(path) if is_pattern else (path or "/", "")
        real = Path(os.path.realpath(fixed))
        closed = None if self.data_dir is None else Path(os.path.realpath(self.data_dir))
        if _is_below(real, closed):
            raise _refused(url)
        for each in self.allowed:
            if urlsplit(each).scheme == "s3":
                continue
            root = Path(os.path.realpath(each.removeprefix("file://")))
            if real.is_relative_to(root) and ".." not in Path(rest).parts:
                key = (real / rest).relative_to(root).as_posix()
                return Location(url, FileBlob(root), root, "" if key == "." else key, closed)
        raise _refused(url)

    def _in_bucket(self, url: str) -> Location:
        parts = urlsplit(url)
        wanted = unquote(parts.path).strip("/")
        for each in self.allowed:
            place = urlsplit(each)
            prefix = unquote(place.path).strip("/")
            if place.scheme != "s3" or place.netloc != parts.netloc or parts.query:
                continue
            if prefix and wanted != prefix and not wanted.startswith(f"{prefix}/"):
                continue
            if each not in self.blobs:
                self.blobs[each] = open_blob(each, Path())
            key = wanted[len(prefix) :].strip("/")
            return Location(url, self.blobs[each], None, key, self.data_dir, each)
        raise _refused(url)


def _is_below(path: Path, directory: Path | None) -> bool:
    return directory is not None and path.is_relative_to(directory)


def _without_pattern(path: str) -> tuple[str, str]:
    """Return the directories of a path before the first with a pattern, and the rest."""
    parts = path.split("/")
    for place, part in enumerate(parts):
        if PATTERN & set(part):
            return "/".join(parts[:place]) or "/", "/".join(parts[place:])
    return path or "/", ""


def _matches(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether the parts of a path match those of a pattern, of which ** is any number."""
    if "**" not in wanted:
        return len(parts) == len(wanted) and all(map(fnmatch.fnmatchcase, parts, wanted))
    at = wanted.index("**")
    rest = wanted[at + 1 :]
    if not _matches(parts[:at], wanted[:at]):
        return False
    return any(_matches(parts[start:], rest) for start in range(at, len(parts) + 1))


def _is_data(key: str) -> bool:
    return not key.rpartition("/")[2].startswith((".", "_"))


def _is_deep_data(rest: str) -> bool:
    """Whether no part of a path is hidden; a directory `_column=value` is a partition."""
    *directories, name = rest.split("/")
    hidden = (each.startswith((".", "_")) and "=" not in each for each in directories)
    return _is_data(name) and not any(hidden)


def _refused(url: str) -> InsufficientPrivilege:
    return InsufficientPrivilege(
        f'the place "{url}" is not allowed',
        hint="The server's option --copy-dir names the directories and buckets that COPY, sources"
        " and sinks may use.",
    )
