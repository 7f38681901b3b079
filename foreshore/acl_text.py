"""Entries of lists of rights as text, such as `reader=ar*/owner`: the roles by their names.

A star after a letter is the option to grant the right. Names of other characters than letters,
digits and underscores are quoted. No name before the sign is PUBLIC.
"""

import re
from typing import NamedTuple

_NAME = r'"(?:[^"]|"")*"|[^"=/]*'
_ITEM = re.compile(rf"({_NAME})=((?:[a-zA-Z]\*?)*)/({_NAME})\Z", re.DOTALL)


class AclItem(NamedTuple):
    """An entry; `grantable` are those of `rights` that the grantee may give to others."""

    grantee: str
    grantor: str
    rights: str
    grantable: str

    def __str__(self) -> str:
        rights = "".join(f"{r}*" if r in self.grantable else r for r in self.rights)
        return f"{_quoted(self.grantee)}={rights}/{_quoted(self.grantor)}"


def parse_acl_item(text: str) -> AclItem | None:
    """Return the entry that `text` is, None if it is none."""
    found = _ITEM.match(text)
    if found is None:
        return None
    grantee, rights, grantor = found.groups()
    return AclItem(
        _plain(grantee),
        _plain(grantor),
        rights.replace("*", ""),
        "".join(re.findall(r"(.)\*", rights)),
    )


def _quoted(name: str) -> str:
    if all(each.isalnum() or each == "_" or ord(each) > 127 for each in name):
        return name
    return '"' + name.replace('"', '""') + '"'


def _plain(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name
