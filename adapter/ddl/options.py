"""Options of sources and sinks, as ALTER changes them."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from foreshore.errors import InvalidParameterValue

OPTIONS = {
    "batch_ms": "timestamp interval",
    "poll_ms": "poll interval",
    "timeout_ms": "timeout",
}
_Spec = TypeVar("_Spec", bound=msgspec.Struct)


def with_options(spec: _Spec, changes: Mapping[str, Any], what: str) -> _Spec:
    """Return `spec` with other values of fields, None for the default.

    Raises InvalidParameterValue if it lacks one; `what` has such options.
    """
    fields = {each.name: each.default for each in msgspec.structs.fields(spec)}
    for name in changes:
        if name not in fields:
            raise InvalidParameterValue(f'{what} have no option "{OPTIONS[name]}"')
    values = {name: fields[name] if value is None else value for name, value in changes.items()}
    return msgspec.structs.replace(spec, **values)
