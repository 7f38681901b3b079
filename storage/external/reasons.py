"""Why a connection was not made, or was lost, in few words: what clients' libraries say, each once.

A host has several addresses, and a library may try each with and without TLS. Each try has a line
of its own, with the address, and advice.
"""

import os
import re

_AROUND = re.compile(
    r"""Multiple\ connection\ attempts\ failed.*|Multiple\ exceptions:|Is\ the\ server\ running\ .*
    |This\ probably\ means\ .*|before\ or\ while\ processing\ .*|HINT:.*
    |connection\ failed:|consuming\ input\ failed:|-\ host:.*?hostaddr:\ '[^']*':
    |connection\ to\ server\ (?:at|on\ socket)\ "[^"]*"(?:\ \([^)]*\))?(?:,\ port\ \d+)?\ failed:
    |FATAL:|fe_sendauth:""",
    re.VERBOSE,
)
_NUMBERED = re.compile(r"\[Errno (-?\d+)\] (?:Connect call failed \(.*?\)|([^\[]*))(?:, (?=\[)|$)")


def reasons(text: str) -> str:
    """Return the reasons in what libpq, psycopg, asyncpg or asyncio say."""
    found: list[str] = []
    for line in text.splitlines():
        said = _AROUND.sub("", line).strip()
        numbered = _NUMBERED.findall(said)
        each = [told.strip() or os.strerror(int(number)) for number, told in numbered]
        found += each if numbered else [said]
    return "; ".join(dict.fromkeys(each for each in found if each)) or text.strip()
