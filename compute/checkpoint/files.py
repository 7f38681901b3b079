"""Files of checkpoints: named arrays in an Arrow IPC file, which is mapped when it is loaded.

A file has one row, and for each array a column, a list of the array's values; the column's metadata
have its `shape`. A mapped array that is `changeable` may be changed: the changes stay in this
process, and it counts as the process's own memory. Others must not be written to.
"""

import ctypes
import mmap
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

SHAPE = b"shape"


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write a file; raises OSError."""
    columns, fields = [], []
    for name, array in arrays.items():
        flat = np.ascontiguousarray(array).reshape(-1)
        type = pa.from_numpy_dtype(flat.dtype)
        values = pa.Array.from_buffers(type, len(flat), [None, pa.py_buffer(flat)])
        columns.append(pa.LargeListArray.from_arrays(pa.array([0, len(flat)], pa.int64()), values))
        shape = ",".join(map(str, np.shape(array))).encode()
        fields.append(pa.field(name, columns[-1].type, metadata={SHAPE: shape}))
    schema = pa.schema(fields)
    with pa.OSFile(str(path), "wb") as out, pa.ipc.new_file(out, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


def map_arrays(path: Path, *, changeable: bool = True) -> dict[str, Any]:
    """Return the arrays of a file by name; raises OSError, and ArrowInvalid or ValueError."""
    access = mmap.ACCESS_COPY if changeable else mmap.ACCESS_READ
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=access)
    whole = pa.py_buffer(mapped)
    memory: Any = mapped
    if not changeable:  # kernels are compiled for arrays that may be changed, and change none
        memory = (ctypes.c_char * len(mapped)).from_address(whole.address)
        memory.mapped = mapped  # stays as long as an array does
    with pa.ipc.open_file(pa.BufferReader(whole)) as reader:
        batch, schema = reader.get_batch(0), reader.schema
    found = {}
    for field, column in zip(schema, batch.columns, strict=True):
        shape = tuple(int(n) for n in field.metadata[SHAPE].split(b",") if n)
        values = column.values
        dtype = np.dtype(values.type.to_pandas_dtype())
        if len(values) != prod(shape) or values.offset:
            raise ValueError(f"{field.name} has another number of values than its shape says")
        if len(values):
            begin = values.buffers()[1].address - whole.address
            found[field.name] = np.frombuffer(memory, dtype, len(values), begin).reshape(shape)
        else:
            found[field.name] = np.empty(shape, dtype)
    return found


def write_table(path: Path, table: pa.Table) -> None:
    """Write a table as an Arrow IPC file; raises OSError."""
    with pa.OSFile(str(path), "wb") as out, pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table)


def read_table(path: Path) -> pa.Table:
    """Return the table of a file; raises OSError and ArrowInvalid."""
    with pa.OSFile(str(path)) as source:
        return pa.ipc.open_file(source).read_all()
