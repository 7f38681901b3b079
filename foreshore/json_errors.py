"""Error messages for invalid JSON; those of a decoder name its library's types."""

import re

_PLACE = re.compile(r" - at `(?:key in )?\$(?P<place>[^`]*)`$")
_BYTE = re.compile(r"\(byte (?P<byte>\d+)\)")
_TYPES = {
    "str": "text",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "object": "object",
    "array": "array",
    "null": "null",
}
_WRONG_TYPE = re.compile(r"Expected `(?P<wanted>[^`]+)`, got `(?P<found>[^`]+)`")
_MISSING = re.compile(r"Object missing required field `(?P<field>[^`]+)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<field>[^`]+)`")


def describe_json_error(error: Exception) -> str:
    """Return what is wrong, such as `"query" is integer, and must be text`.

    `error` is of a decoder of msgspec, or UnicodeDecodeError or RecursionError.
    """
    if isinstance(error, RecursionError):
        return "the JSON is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "the JSON is not valid UTF8"
    said = str(error)
    if said == "Invalid UTF-8 encoded string":  # from msgspec 0.23 on
        return "the JSON is not valid UTF8"
    place = _PLACE.search(said)
    at = f'"{place["place"].lstrip(".")}"' if place and place["place"] else "the value"
    if found := _WRONG_TYPE.match(said):
        wanted = " or ".join(_TYPES.get(each, each) for each in found["wanted"].split(" | "))
        return f"{at} is {_TYPES.get(found['found'], found['found'])}, and must be {wanted}"
    where = "" if at == "the value" else f" in {at}"
    if found := _MISSING.match(said):
        return f'field "{found["field"]}" is missing{where}'
    if found := _UNKNOWN.match(said):
        return f'field "{found["field"]}" is unknown{where}'
    if found := _BYTE.search(said):
        return f"the JSON is malformed at byte {found['byte']}"
    if said == "Input data was truncated":
        return "the JSON ends too early"
    return f"{at} is not a valid value"
