"""Delta tables: the steps between their versions."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

import pyarrow as pa

from foreshore.arrow_errors import describe_file_error
from foreshore.errors import (
    BadCopyFileFormat,
    ObjectNotInPrerequisiteState,
    Unavailable,
    UndefinedFile,
)
from foreshore.storage.lake import delta
from foreshore.storage.lake.places import Location
from foreshore.storage.lake.steps import TABLE, VERSION, Position, Step, number_of, step
from foreshore.storage.store_errors import told

ROWS_AT_ONCE = 1 << 16


class DeltaTable:
    """A Delta table in a directory or a bucket."""

    def __init__(self, location: Callable[[], Location]) -> None:
        self._location = location

    def columns(self) -> tuple[pa.Schema, str]:
        """Return the schema of the newest version; its columns have no ids."""
        return _dataset(self._location(), None)[1].schema, ""

    def newest(self) -> Position:
        """Return the position after the newest version."""
        return {VERSION: _dataset(self._location(), None)[0].version() + 1}

    def steps(self, position: Position) -> Iterator[Step]:
        """Yield the steps from a position to the newest version."""
        location = self._location()
        table, dataset = _dataset(location, None)
        end, id = table.version() + 1, _number(table)
        moved = {VERSION: end, TABLE: id}
        following = position.get(VERSION)
        is_other = position.get(TABLE, id) != id
        if following is None or is_other:
            found = step({}, _files(location, dataset), moved)
            yield replace(found, anew=is_other)
            return
        if following > end:
            raise ObjectNotInPrerequisiteState(
                f"the Delta table has no version {following - 1}, which was read",
                detail=f"Its newest version is {end - 1}.",
                hint="Drop the source and create it anew.",
            )
        if following == end:
            if TABLE not in position:
                yield Step((), (), moved)
            return
        before: Mapping[str, _DataFile] | None = None if following else {}
        for version in range(following, end):
            after = {VERSION: version + 1, TABLE: id}
            if _only_rewrites(location, version):
                before = None
                yield Step((), (), after)
                continue
            try:
                before = _version(location, version - 1, id) if before is None else before
                now = _version(location, version, id)
            except (BadCopyFileFormat, UndefinedFile):  # the log is shorter
                next = None
            else:
                next = step(before, now, after)
            if next is None or not _are_there(location, next):
                yield replace(step({}, _files(location, dataset), moved), anew=True)
                return
            yield next
            before = now


@dataclass(frozen=True, slots=True)
class _DataFile:
    path: str
    fragment: Any
    schema: pa.Schema

    def rows(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield its rows with columns `names`, among them those of its partition."""
        missing = [name for name in names if name not in self.schema.names]
        if missing:
            raise BadCopyFileFormat(
                f'the Delta table has no column "{missing[0]}"',
                hint="Drop the source and create it anew, or bring the column back.",
            )
        try:
            yield from self.fragment.to_batches(
                schema=self.schema,
                columns=list(names),
                batch_size=ROWS_AT_ONCE,
                batch_readahead=1,
                fragment_readahead=1,
            )
        except (pa.ArrowInvalid, OSError) as error:
            said = describe_file_error(error)
            raise BadCopyFileFormat(f'Delta file "{self.path}": {said}') from None


def _version(location: Location, version: int, id: int) -> Mapping[str, _DataFile]:
    """Return the files of a version of the table with this number."""
    table, dataset = _dataset(location, version)
    if _number(table) != id:
        raise Unavailable("the Delta table was made anew while it was read")
    return _files(location, dataset)


def _are_there(location: Location, step: Step) -> bool:
    """Whether the files of a step are there, and were not vacuumed."""
    for file in (*step.gone, *step.come):
        key = "/".join(filter(None, (location.key, file.path)))
        if location.root is not None:
            if not (location.root / key).exists():
                return False
        elif not any(found == key for found, _ in location.blob.list(key)):
            return False
    return True


def _only_rewrites(location: Location, version: int) -> bool:
    """Whether a version has the rows of the one before, perhaps in other files."""
    name = f"{version:020}.json"
    log = location.blob.get("/".join(filter(None, (location.key, delta.LOG, name))))
    if log is None:
        return False
    actions = [json.loads(line) for line in log.splitlines() if line.strip()]
    if any("metaData" in each for each in actions):
        return False
    files = [each.get("add") or each.get("remove") for each in actions]
    return all(file is None or file.get("dataChange") is False for file in files)


def _files(location: Location, dataset: Any) -> Mapping[str, _DataFile]:
    """Return the files of a version by their paths; raises if a link leads out of the place."""
    if location.root is not None:
        location.check_links()
    return {
        each.path: _DataFile(each.path, each, dataset.schema) for each in dataset.get_fragments()
    }


def _number(table: Any) -> int:
    """Return which table it is; ids should be UUIDs, but any text is one to the protocol."""
    id = str(table.metadata().id)
    try:
        return number_of(UUID(id))
    except ValueError:
        return number_of(uuid5(NAMESPACE_URL, id))


def _dataset(location: Location, version: int | None) -> tuple[Any, Any]:
    """Return a version of a table, and its rows as a dataset."""
    deltalake = delta.package()
    uri, options = delta.address_of(location)
    try:
        table = deltalake.DeltaTable(uri, version=version, storage_options=options)
        delta.check_mapping(table)
        return table, table.to_pyarrow_dataset()
    except deltalake.exceptions.TableNotFoundError:
        raise UndefinedFile(
            f'"{location.url}" is no Delta table',
            hint="Look at the place; or bring the table back.",
        ) from None
    except (deltalake.exceptions.DeltaError, pa.ArrowInvalid, OSError) as error:
        raise BadCopyFileFormat(f'Delta table "{location.url}": {told(error)}') from None
