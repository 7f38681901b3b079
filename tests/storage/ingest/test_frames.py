"""The ids of schemas before Avro messages, as two kinds of registries have them."""

import uuid
import zlib

import pytest

from foreshore.storage.ingest.formats import frames

ID = uuid.UUID("b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63")


def test_ids_and_messages_are_separated() -> None:
    assert frames.confluent(b"\0\0\0\1\2rest") == (258, b"rest")
    assert frames.glue(b"\3\0" + ID.bytes + b"rest") == (str(ID), b"rest")
    assert frames.glue(b"\3\5" + ID.bytes + zlib.compress(b"rest")) == (str(ID), b"rest")


def test_frames_that_are_no_frames_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in (b"", b"\0\0\0\1", b"\1\0\0\0\0rest"):
        with pytest.raises(ValueError, match="does not begin with a zero"):
            frames.confluent(wrong)
    for wrong in (b"\3\0short", b"\0\0" + ID.bytes, b"\3\1" + ID.bytes):
        with pytest.raises(ValueError, match="as those of AWS Glue"):
            frames.glue(wrong)
    with pytest.raises(ValueError, match="cannot be decompressed"):
        frames.glue(b"\3\5" + ID.bytes + b"rest")
    packed = b"\3\5" + ID.bytes + zlib.compress(bytes(1000))
    for limit, message in ((1000, packed[:-6]), (999, packed)):
        monkeypatch.setattr(frames, "MOST_BYTES", limit)
        with pytest.raises(ValueError, match="or is cut off"):
            frames.glue(message)
