"""Casts between "char" and integers, which are the byte with a sign.

`casting` imports the module, because it declares the casts that go by way of text.
"""

from foreshore.expr.functions.function import hidden
from foreshore.expr.functions.rows import fail, mapped
from foreshore.single_bytes import byte_of, datum_of_byte


def _byte_of_integer(value: int) -> str:
    if not -128 <= value < 128:
        raise fail("22003", '"char" out of range')
    return datum_of_byte(value & 255)


def _integer_of_byte(datum: str) -> int:
    byte = byte_of(datum)
    return byte - 256 if byte > 127 else byte


hidden("cast(int4,char)", "int4", "char", mapped(_byte_of_integer), fallible=True)
hidden("cast(char,int4)", "char", "int4", mapped(_integer_of_byte))
