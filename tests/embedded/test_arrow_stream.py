import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.arrow_stream import MOST_ROWS, ArrowStream, StreamError
from tests.effort import examples

TABLE = pa.table({"a": pa.array([1, 2, None]), "b": pa.array(["x", None, "y" * 100])})
CODED = pa.table({"c": pa.array(["x", "y", "x", None]).dictionary_encode()})


def stream_of(table: pa.Table, rows: int | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, rows)
    return bytes(sink.getvalue())


def read(stream: ArrowStream, data: bytes, step: int) -> pa.Table:
    batches = []
    for at in range(0, len(data), step):
        stream.feed(data[at : at + step])
        batches += list(stream.batches())
    return pa.Table.from_batches(batches, stream.schema)


@pytest.mark.parametrize("step", [1, 7, 8, 100, 1 << 20])
@pytest.mark.parametrize("table", [TABLE, CODED, TABLE.slice(0, 0)])
def test_stream_is_the_same_however_it_is_cut(table: pa.Table, step: int) -> None:
    stream = ArrowStream()
    assert read(stream, stream_of(table, 2), step).equals(table)
    assert stream.ended
    assert not stream.unread_bytes


def test_data_after_the_end_is_refused() -> None:
    with pytest.raises(StreamError, match="after the end"):
        read(ArrowStream(), stream_of(TABLE) * 2, 1 << 20)


def test_message_beyond_the_limit_is_refused_before_it_is_kept() -> None:
    data = stream_of(pa.table({"a": pa.array(range(10_000))}))
    with pytest.raises(StreamError, match="more than 4096 bytes"):
        read(ArrowStream(4096), data, 1000)


@settings(max_examples=examples(300))
@given(st.data())
def test_changed_bytes_are_an_error_or_valid_rows(data: st.DataObject) -> None:
    whole = bytearray(stream_of(data.draw(st.sampled_from([TABLE, CODED])), 2))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    stream = ArrowStream(1 << 20)
    try:
        found = read(stream, bytes(whole), data.draw(st.sampled_from([13, 64, 10_000])))
    except StreamError:
        return
    except ValueError:  # there is no table without a schema
        assert stream.schema is None
        return
    found.validate(full=True)


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
@pytest.mark.parametrize("is_dictionary", [False, True])
def test_compressed_messages_are_limited_by_their_contents(codec: str, is_dictionary: bool) -> None:
    column = pa.array(["x" * (1 << 20)])
    table = pa.table({"a": column.dictionary_encode() if is_dictionary else column})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(
        sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)
    ) as writer:
        writer.write_table(table)
    data = sink.getvalue().to_pybytes()
    assert len(data) < 1 << 17
    stream = ArrowStream()
    stream.feed(data)
    assert pa.Table.from_batches(stream.batches()).equals(table)
    limited = ArrowStream(1 << 18)
    limited.feed(data)
    with pytest.raises(StreamError, match="when it is decompressed"):
        list(limited.batches())


def test_rows_of_null_are_limited_by_their_number() -> None:
    batch = pa.RecordBatch.from_arrays([pa.nulls(MOST_ROWS + 1)], ["a"])
    stream = ArrowStream()
    stream.feed((batch.schema.serialize().to_pybytes()) + batch.serialize().to_pybytes())
    with pytest.raises(StreamError, match="more than 16777216 rows"):
        list(stream.batches())
