"""normalize and is_normalized: Unicode's normal forms of text."""

import unicodedata
from collections.abc import Callable
from typing import Any, Literal, cast

from foreshore.expr.functions.function import declare
from foreshore.expr.functions.rows import fail, mapped

FORMS = ("NFC", "NFD", "NFKC", "NFKD")
_Form = Literal["NFC", "NFD", "NFKC", "NFKD"]


def _with_form(compute: Callable[[_Form, str], Any]) -> Callable[..., Any]:
    def checked(text: str, form: str = "NFC") -> Any:
        if form.upper() not in FORMS:
            raise fail("22023", f"invalid normalization form: {form}")
        return compute(cast("_Form", form.upper()), text)

    return checked


for _name, _result, _compute in (
    ("normalize", "text", unicodedata.normalize),
    ("is_normalized", "bool", unicodedata.is_normalized),
):
    declare(_name, "text", _result, mapped(_with_form(_compute)))
    declare(_name, "text text", _result, mapped(_with_form(_compute)), fallible=True)
