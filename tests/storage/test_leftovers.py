"""Which kinds of sources and sinks leave something outside, and that these can remove it."""

from typing import Any, get_args

import msgspec
import pytest

from foreshore.sinks import spec as sinks
from foreshore.sources import spec as sources
from foreshore.sources.webhook import WebhookSource
from foreshore.storage.export.exporter import Disposing as DisposingSink
from foreshore.storage.export.kinds import kind_of as sink_kind
from foreshore.storage.ingest.connector import Disposing as DisposingSource
from foreshore.storage.ingest.kinds import kind_of as source_kind

PULLED = [each for each in get_args(sources.SourceSpec) if each is not WebhookSource]


def without_values(type: type) -> Any:
    """Return a struct of which only the type counts."""
    return type(*(None for each in msgspec.structs.fields(type) if each.required))


@pytest.mark.parametrize("spec", PULLED, ids=lambda spec: spec.__name__)
def test_kind_of_source_leaves_something_if_and_only_if_it_can_remove_it(spec: type) -> None:
    made = without_values(spec)
    leaves = sources.left_by(made) is not None
    assert leaves == isinstance(source_kind(made), DisposingSource)


@pytest.mark.parametrize("target", get_args(sinks.Target), ids=lambda target: target.__name__)
def test_kind_of_sink_leaves_something_if_and_only_if_it_can_remove_it(target: type) -> None:
    made = without_values(target)
    leaves = sinks.left_by(made, "foreshore_x_u1") is not None
    assert leaves == isinstance(sink_kind(made), DisposingSink)
