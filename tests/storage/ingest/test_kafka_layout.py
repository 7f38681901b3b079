"""Which columns keys and values of messages become."""

import pytest

from foreshore.errors import DuplicateColumn
from foreshore.sources.formats import AvroFormat
from foreshore.sources.kafka import Messages
from foreshore.sources.outputs import Column
from foreshore.storage.ingest.formats.schemas import Resolved
from foreshore.storage.ingest.kafka.layout import laid_out

VALUE = Resolved((Column("id", "int4"), Column("owner", "int4")), is_single=False)
KEY = Resolved((Column("id", "int4", False),), is_single=False)


def _columns(key_name: str | None) -> list[str]:
    avro = AvroFormat()
    spec = Messages(avro, avro, shows_key=True, key_name=key_name, envelope="upsert")
    return [each.name for each in laid_out(spec, VALUE, KEY, None).columns]


def test_a_key_with_another_name_is_a_column_of_its_own() -> None:
    assert _columns(None) == ["id", "owner"]
    assert _columns("id") == ["id", "owner"]
    assert _columns("k") == ["k", "id", "owner"]
    with pytest.raises(DuplicateColumn, match='two columns "owner"'):  # a field that it would hide
        _columns("owner")
