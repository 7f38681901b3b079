"""Manifests: what a checkpoint of a replica consists of.

A manifest is one JSON blob, which names all files of a checkpoint with their lengths and checksums.
It is stored last and as a whole, so a checkpoint is complete or not there. docs/format.md describes
the files.
"""

import hashlib
from functools import cache
from pathlib import Path

import msgspec

from foreshore import errors
from foreshore.compute.protocol import CheckpointStatus, DataflowDescription
from foreshore.ids import GlobalId
from foreshore.types import ColumnType

FORMAT = 3
NAME = "manifest.json"
DIRECTORY = "checkpoints"


class File(msgspec.Struct, frozen=True):
    """A file by its key in the blob store; `checksum` is the CRC-32 of all of it."""

    key: str
    bytes: int
    checksum: int


class SavedState(msgspec.Struct, frozen=True):
    """The files of a `Captured`: one of arrays, one for each large run and table, and its files."""

    arrays: File
    runs: dict[str, File] = {}
    tables: dict[str, File] = {}
    kept: dict[str, File] = {}

    @property
    def files(self) -> list[File]:
        """Return all of them."""
        kept = self.kept.values()
        return [self.arrays, *self.runs.values(), *self.tables.values(), *kept]


class SavedCollection(msgspec.Struct, frozen=True):
    """The rows of a collection that dataflows share, with all updates before `upper`.

    `groups` are the numbers of the columns that are kept, in the groups in which they were added.
    """

    id: GlobalId
    columns: tuple[ColumnType, ...]
    groups: tuple[tuple[int, ...], ...]
    upper: int
    state: SavedState


class SavedStrings(msgspec.Struct, frozen=True):
    """The strings with the numbers from `begin` on and before `end`."""

    begin: int
    end: int
    state: SavedState


class SavedDataflow(msgspec.Struct, frozen=True):
    """A dataflow that has taken all updates before `upper`; `saved_at` is in milliseconds.

    All its output is before `settled`; its indexes are exact from `exact_from` on.
    """

    id: GlobalId
    fingerprint: str
    upper: int
    settled: int
    exact_from: int
    saved_at: int
    state: SavedState

    @property
    def bytes(self) -> int:
        """Return the size of its own files."""
        return sum(file.bytes for file in self.state.files)


class Manifest(msgspec.Struct, frozen=True):
    """A checkpoint: what belongs to the replica as a whole, its collections and dataflows."""

    format: int
    engine: str
    database: str
    saved_at: int
    seed: int
    strings_seed: int
    strings: tuple[SavedStrings, ...]
    collections: tuple[SavedCollection, ...]
    dataflows: tuple[SavedDataflow, ...]

    @property
    def files(self) -> list[File]:
        """Return all files."""
        states = [each.state for each in self.strings]
        states += [each.state for each in self.collections]
        states += [each.state for each in self.dataflows]
        return [file for state in states for file in state.files]

    def dataflow(self, id: GlobalId) -> SavedDataflow | None:
        """Return a dataflow of the checkpoint, None if it is not there."""
        return next((each for each in self.dataflows if each.id == id), None)

    def status(self) -> tuple[CheckpointStatus, ...]:
        """Return what is reported of its dataflows."""
        return tuple(
            CheckpointStatus(each.id, each.upper, each.saved_at, each.bytes)
            for each in self.dataflows
        )

    def unfit(self, database: str) -> str | None:
        """Return why nothing can be loaded for a database, None if something can."""
        if self.format != FORMAT:
            return f"it has format {self.format}"
        if self.engine != engine_version():
            return "it is of another version of the engine"
        if self.database != database:
            return "it is of another database"
        return None


@cache
def engine_version() -> str:
    """Return a digest of all code that decides what state a plan has and what it evaluates to.

    It reads some hundred files the first time, so not on the event loop.
    """
    # A package may have no file of its own, as in an editable installation.
    return digest_of(Path(errors.__file__).parent, Path(__file__).parent.parent)


def digest_of(package: Path, engine: Path) -> str:
    """Return a digest of the code of the modules and expressions of a package, and of its engine.

    Names are digested too, and all lengths, so that no two sets of files look the same.
    """
    files = [*package.glob("*.py"), *package.glob("expr/**/*.py"), *engine.glob("**/*.py")]
    roots = (package, engine)
    digest = hashlib.sha256()
    for root in roots:
        inside = [file for file in files if file.is_relative_to(root)]
        for file in sorted(inside):
            content = file.read_bytes()
            digest.update(f"{file.relative_to(root)} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()


def fingerprint(description: DataflowDescription) -> str:
    """Return a digest of a dataflow's plan and exports."""
    plan = msgspec.structs.replace(description, as_of=0, memory_limit=None, hydrate=None)
    whole = msgspec.msgpack.encode(plan)
    return hashlib.sha256(whole).hexdigest()


def prefix_of(cluster: str, replica: str | None = None) -> str:
    """Return what the keys of a cluster's checkpoints begin with, or of one of its replicas."""
    parts = [DIRECTORY, _plain(cluster), *([] if replica is None else [_plain(replica)])]
    return "/".join(parts) + "/"


def _plain(name: str) -> str:
    """Return a name as a part of a key."""
    if name.isascii() and name.isalnum():
        return name
    return f"x-{hashlib.sha256(name.encode()).hexdigest()[:24]}"
