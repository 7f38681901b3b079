"""Delta tables: the steps between their versions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from foreshore.errors import BadCopyFileFormat, UndefinedFile
from foreshore.storage.lake import delta
from foreshore.storage.lake.places import Location
from foreshore.storage.lake.steps import Step, step


def schema(location: Location) -> pa.Schema:
    """Return the schema of the newest version."""
    return _dataset(location, None)[1].schema


def newest(location: Location) -> int:
    """Return the position after the newest version."""
    version: int = _dataset(location, None)[0].version()
    return version + 1


def steps(location: Location, following: int | None) -> Iterator[Step]:
    """Yield the steps from a position to the newest version; from None: all of its files."""
    end = newest(location)
    if following is None:
        yield step({}, _files(location, end - 1), end)
        return
    if following >= end:
        return
    before: Mapping[str, _DataFile] = _files(location, following - 1) if following else {}
    for version in range(following, end):
        now = _files(location, version)
        yield step(before, now, version + 1)
        before = now


@dataclass(frozen=True, slots=True)
class _DataFile:
    path: str
    fragment: Any
    schema: pa.Schema

    def rows(self, names: Sequence[str]) -> pa.Table:
        """Return its rows with columns `names`, among them those of its partition."""
        missing = [name for name in names if name not in self.schema.names]
        if missing:
            raise BadCopyFileFormat(f'the Delta table has no column "{missing[0]}"')
        return self.fragment.to_table(schema=self.schema, columns=list(names))


def _files(location: Location, version: int) -> Mapping[str, _DataFile]:
    """Return the files of a version by their paths."""
    _, dataset = _dataset(location, version)
    return {
        each.path: _DataFile(each.path, each, dataset.schema) for each in dataset.get_fragments()
    }


def _dataset(location: Location, version: int | None) -> tuple[Any, Any]:
    """Return a version of a table, and its rows as a dataset."""
    deltalake = delta.package()
    uri, options = delta.address_of(location)
    try:
        table = deltalake.DeltaTable(uri, version=version, storage_options=options)
        return table, table.to_pyarrow_dataset()
    except deltalake.exceptions.TableNotFoundError:
        raise UndefinedFile(f'"{location.url}" is no Delta table') from None
    except (deltalake.exceptions.DeltaError, pa.ArrowInvalid, OSError) as error:
        said = str(error).partition("\n")[0]
        raise BadCopyFileFormat(f'Delta table "{location.url}": {said}') from None
