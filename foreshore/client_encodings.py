"""Encodings that a client may use: PostgreSQL's names, and the codecs that read and write them.

The server's encoding is UTF8. SQL_ASCII of a client means that nothing is converted.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType

UTF8 = "UTF8"
SQL_ASCII = "SQL_ASCII"

# PostgreSQL's names, with Python's names of the same encoding.
CODECS: Mapping[str, str] = MappingProxyType(
    {
        **{f"LATIN{number}": f"iso8859-{part}" for number, part in (
            (1, 1), (2, 2), (3, 3), (4, 4), (5, 9), (6, 10), (7, 13), (8, 14), (9, 15), (10, 16),
        )},
        **{f"ISO_8859_{part}": f"iso8859-{part}" for part in (5, 6, 7, 8)},
        **{f"WIN{number}": f"cp{number}" for number in range(1250, 1259)},
        "WIN866": "cp866",
        "WIN874": "cp874",
        "KOI8R": "koi8-r",
        "KOI8U": "koi8-u",
        "EUC_CN": "gb2312",
        "EUC_JIS_2004": "euc_jis_2004",
        "EUC_JP": "euc_jp",
        "EUC_KR": "euc_kr",
        "BIG5": "cp950",
        "GB18030": "gb18030",
        "GBK": "cp936",
        "JOHAB": "johab",
        "SHIFT_JIS_2004": "shift_jis_2004",
        "SJIS": "cp932",
        "UHC": "cp949",
    }
)  # fmt: skip
# Those with more than one byte for some characters, in which a sequence of bytes may be invalid.
_MULTIBYTE = frozenset(
    "BIG5 EUC_CN EUC_JIS_2004 EUC_JP EUC_KR GB18030 GBK JOHAB SHIFT_JIS_2004 SJIS UHC".split()
)
# Other names, without punctuation, beside those of the encodings themselves.
_ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "unicode": UTF8,
        "default": UTF8,
        **{f"iso8859{name.rpartition('-')[2]}": code for code, name in CODECS.items()
           if name.startswith("iso")},
        **{f"windows{code[3:]}": code for code in CODECS if code.startswith("WIN")},
        "abc": "WIN1258", "tcvn": "WIN1258", "tcvn5712": "WIN1258", "vscii": "WIN1258",
        "alt": "WIN866", "win": "WIN1251", "koi8": "KOI8R",
        "mskanji": "SJIS", "shiftjis": "SJIS", "win932": "SJIS", "windows932": "SJIS",
        "win936": "GBK", "windows936": "GBK", "win949": "UHC", "windows949": "UHC",
        "win950": "BIG5", "windows950": "BIG5",
    }
)  # fmt: skip


def _bare(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


_NAMES = {_bare(name): name for name in (UTF8, SQL_ASCII, *CODECS)} | dict(_ALIASES)


def encoding_named(name: str) -> str | None:
    """Return PostgreSQL's name of an encoding, however it is written; None: it is not known."""
    return _NAMES.get(_bare(name))


def is_multibyte(name: str) -> bool:
    """Return whether an encoding has characters of more than one byte."""
    return name in _MULTIBYTE
