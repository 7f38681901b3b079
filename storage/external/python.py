"""Functions and classes of Python modules that an administrator has allowed."""

import importlib
from collections.abc import Callable
from typing import Any

from foreshore.errors import InvalidParameterValue


def function_of(named: str) -> Callable[..., Any]:
    """Return what `module:function` names, whose module is imported. Blocks.

    Raises InvalidParameterValue if it cannot be imported, or called.
    """
    module, _, name = named.partition(":")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except Exception as error:
        raise InvalidParameterValue(
            f'function "{named}" cannot be imported: {type(error).__name__}: {error}'
        ) from error
    if not callable(found):
        raise InvalidParameterValue(f'"{named}" is no function')
    return found
