"""Errors and notices as JSON, and the HTTP status of an error."""

from collections.abc import Mapping
from typing import Any

import msgspec

from foreshore.adapter.client import Notice
from foreshore.errors import DatabaseError

_STATUS = {"28P01": 401, "28000": 403, "42501": 403}
_STATUS_OF_CLASS = {"53": 503, "57": 503, "08": 400, "XX": 500}

as_json = msgspec.json.Encoder().encode


def error_fields(error: DatabaseError) -> dict[str, Any]:
    """Return the members of an error, without those that it does not have."""
    fields = {
        "message": error.message,
        "code": error.sqlstate,
        "detail": error.detail,
        "hint": error.hint,
        "position": error.position,
    }
    return {name: value for name, value in fields.items() if value is not None}


def notice_fields(notice: Notice) -> Mapping[str, Any]:
    """Return the members of a notice, without those that it does not have."""
    fields = {
        "message": notice.message,
        "code": notice.sqlstate,
        "severity": notice.severity.lower(),
        "detail": notice.detail,
        "hint": notice.hint,
    }
    return {name: value for name, value in fields.items() if value is not None}


def status_of(error: DatabaseError) -> int:
    """Return the HTTP status of a request that has failed before it ran a statement."""
    state = error.sqlstate
    return _STATUS.get(state) or _STATUS_OF_CLASS.get(state[:2], 400)
