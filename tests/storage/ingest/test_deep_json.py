"""JSON messages that are nested too deeply are wrong, and hold up none of the others."""

from collections.abc import Callable

import pytest

from foreshore.sources.outputs import Column
from foreshore.storage.ingest.formats.changes import ChangeDecoder, PayloadDecoder
from foreshore.storage.ingest.formats.decoder import Decoder
from foreshore.storage.ingest.formats.json_documents import JsonbDecoder, MembersDecoder
from foreshore.types import SqlType

DEEP = b"[" * 200_000 + b"]" * 200_000


def members() -> Decoder:
    columns = [Column("n", "int4"), Column("j", "jsonb")]
    return MembersDecoder(columns, [SqlType(each.type) for each in columns])


@pytest.mark.parametrize(
    ("make", "good"),
    [
        (JsonbDecoder, b'{"n": 1}'),
        (members, b'{"n": 1}'),
        (lambda: ChangeDecoder(members()), b'{"after": {"n": 1}}'),
        (lambda: ChangeDecoder(JsonbDecoder()), b'{"payload": {"after": {"n": 1}}}'),
        (lambda: PayloadDecoder(members()), b'{"schema": 0, "payload": {"n": 1}}'),
    ],
)
def test_message_that_is_nested_too_deeply_is_wrong(
    make: Callable[[], Decoder], good: bytes
) -> None:
    whole = (b'{"n":%s}', b'{"j":%s}', b'{"x":%s,"n":1}', b'{"payload":%s}', b'{"after":%s}', b"%s")
    values = [good, *(each % DEEP for each in whole), good]
    found = make().decode(values)
    assert sorted(found.errors) == [1, 2, 3, 4, 5, 6]
    rows = found.columns[0].to_pylist()
    assert rows[0] == rows[7]
    assert rows[0] in (1, '{"n": 1}')
    assert rows[1:7] == [None] * 6
