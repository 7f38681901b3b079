"""Functions of lists of rights: acldefault, makeaclitem, aclcontains, and the rows of aclexplode.

A list is an array of text here. The names of roles are looked up in the catalog by the SQL that
calls these functions (`sql/bind/acl_functions.py`).
"""

from collections.abc import Sequence

from foreshore.acl_text import AclItem, parse_acl_item
from foreshore.expr.functions.function import declare, declare_table, hidden
from foreshore.expr.functions.rows import fail, mapped
from foreshore.privileges import LETTERS, RIGHTS, TO_PUBLIC
from foreshore.types import BOOL, OID, TEXT

ACLEXPLODE = "aclexplode"  # binding adds the names and oids of all roles to its argument

# The letters of acldefault for kinds of objects.
_KINDS = {
    "c": "column", "r": "table", "s": "sequence", "d": "database", "n": "schema", "f": "function",
    "T": "type", "l": "language", "t": "tablespace", "p": "parameter", "L": "large object",
    "F": "foreign-data wrapper", "S": "server",
}  # fmt: skip
_OTHER_RIGHTS = {
    "language": "U", "tablespace": "C", "parameter": "sA", "large object": "rw",
    "foreign-data wrapper": "U", "server": "U",
}  # fmt: skip
_NAMES = {letter: name for name, letter in LETTERS.items()} | {"s": "SET", "A": "ALTER SYSTEM"}


def _default(kind: str, owner: str) -> tuple[str, ...]:
    """Return the rights on an object of a kind that has no list."""
    found = _KINDS.get(kind)
    if found is None:
        raise fail("22023", f"unrecognized object type abbreviation: {kind}")
    if found == "column":
        return ()
    rights = RIGHTS.get(found) or _OTHER_RIGHTS[found]
    public = TO_PUBLIC.get(found, "U" if found == "language" else "")
    entries = [AclItem("", owner, public, "")] if public else []
    return tuple(map(str, (*entries, AclItem(owner, owner, rights, ""))))


def _made(grantee: str, grantor: str, words: str, option: bool) -> str:
    """Return an entry with the rights that `words` name."""
    letters = ""
    for word in words.split(","):
        name = word.strip().upper()
        letter = LETTERS.get({"TEMP": "TEMPORARY"}.get(name, name))  # type: ignore[call-overload]
        if letter is None:
            raise fail("22023", f'unrecognized privilege type: "{word.strip()}"')
        letters += letter
    rights = "".join(each for each in LETTERS.values() if each in letters)
    return str(AclItem(grantee, grantor, rights, rights if option else ""))


def _contains(items: Sequence[str | None], item: str) -> bool:
    """Return whether a list has all rights of an entry."""
    wanted = _read(item)
    return any(
        (each.grantee, each.grantor) == (wanted.grantee, wanted.grantor)
        and set(wanted.rights) <= set(each.rights)
        and set(wanted.grantable) <= set(each.grantable)
        for each in map(_read, filter(None, items))
    )


def _read(text: str) -> AclItem:
    found = parse_acl_item(text)
    if found is None:
        raise fail("22P02", f'invalid input syntax for type aclitem: "{text}"')
    return found


def _each_right(
    items: Sequence[str | None], names: Sequence[str], oids: Sequence[int]
) -> tuple[str, ...]:
    """Return the single rights of a list, each as `grantor grantee right option`.

    `names` and `oids` are those of all roles; PUBLIC, and a role that is not among them, is 0.
    """
    oid = dict(zip(names, oids, strict=False))
    return tuple(
        f"{oid.get(each.grantor, 0)} {oid.get(each.grantee, 0)} {right} {right in each.grantable}"
        for each in map(_read, filter(None, items))
        for right in each.rights
    )


def _grantor(_items: Sequence[str | None], item: str) -> int:
    return int(item.split(" ")[0])


def _grantee(_items: Sequence[str | None], item: str) -> int:
    return int(item.split(" ")[1])


def _privilege(_items: Sequence[str | None], item: str) -> str:
    return _NAMES[item.split(" ")[2]]


def _is_grantable(_items: Sequence[str | None], item: str) -> bool:
    return item.split(" ")[3] == "True"


declare("_acldefault", "text text", "text[]", mapped(_default), fallible=True)
declare("_makeaclitem", "text text text bool", "text", mapped(_made), fallible=True)
declare("aclcontains", "text[] text", "bool", mapped(_contains), fallible=True)
hidden("acl_grantor(text[],text)", "text[] text", "oid", mapped(_grantor))
hidden("acl_grantee(text[],text)", "text[] text", "oid", mapped(_grantee))
hidden("acl_privilege(text[],text)", "text[] text", "text", mapped(_privilege))
hidden("acl_is_grantable(text[],text)", "text[] text", "bool", mapped(_is_grantable))
declare_table(
    ACLEXPLODE,
    "text[] text[] oid[]",
    "text[]",
    mapped(_each_right),
    columns="grantor grantee privilege_type is_grantable",
    more=(
        ("acl_grantor(text[],text)", OID),
        ("acl_grantee(text[],text)", OID),
        ("acl_privilege(text[],text)", TEXT),
        ("acl_is_grantable(text[],text)", BOOL),
    ),
    item_hidden=True,
    fallible=True,
)
