"""Definitions of functions whose bodies are SQL."""

from foreshore.types import SqlType

Definition = tuple[str, str, SqlType, str]  # names, parameters, result, body
