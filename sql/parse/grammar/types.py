"""The grammar of types, and of constants preceded by their type."""

from typing import Any

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from foreshore.keywords import RESERVED
from foreshore.sql.parse.grammar.base import STRINGS, VALUES, BaseParser, is_word, located
from foreshore.sql.parse.grammar.nodes import ContainerSpelling, TypeSpelling

_INTERVAL_FIELDS = ("year", "month", "day", "hour", "minute", "second")
_LAST_FIELDS = {
    "year": ("month",),
    "day": ("hour", "minute", "second"),
    "hour": ("minute", "second"),
    "minute": ("second",),
}
_TYPE_WORDS = frozenset(
    """
    int integer smallint bigint real float double decimal dec numeric boolean bit character char
    varchar nchar national timestamp time interval
    """.split()
)
_ONE_WORD_TYPES = {
    "int": "int4",
    "integer": "int4",
    "smallint": "int2",
    "bigint": "int8",
    "real": "float4",
    "boolean": "bool",
}


class TypeParser(BaseParser):
    """Parse types."""

    def _parse_dcolon(self) -> exp.Expr | None:
        token = self._prev
        spelling = self._spelling()
        spelling.meta["cast_at"] = token.start
        return spelling

    def _parse_types(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        return self._spelling()

    def _typed_constant(self) -> exp.Expr | None:
        """Parse `type 'constant'`; return None without consuming tokens if none follows."""
        token = self._curr
        if token.token_type in VALUES and token.token_type != TokenType.IDENTIFIER:
            return None
        word = token.text.lower()
        index = self._index
        following = self._next
        if word == "interval" and token.token_type != TokenType.IDENTIFIER:
            self._advance()
            modifiers = self._integers() if self._curr and self._curr.text == "(" else []
            if self._curr and self._curr.token_type in STRINGS:
                constant = self._parse_primary()
                fields = None
                if not modifiers:
                    fields, modifiers = self._interval_fields()
                spelling: exp.Expr = TypeSpelling(
                    name=["interval"], modifiers=modifiers, dimensions=0, fields=fields
                )
                return located(exp.Cast(this=constant, to=located(spelling, token)), token)
        elif word in _TYPE_WORDS and token.token_type != TokenType.IDENTIFIER:
            if self._string_after_type():
                spelling = self._spelling()
                if word == "bit" and following and following.token_type in STRINGS:
                    spelling.set("modifiers", [])  # of the constant's own length
                if not (self._curr and self._curr.token_type in STRINGS):
                    self.fail(self._curr)
                return located(exp.Cast(this=self._parse_primary(), to=spelling), token)
        elif (
            following
            and following.token_type in STRINGS
            and (token.token_type == TokenType.IDENTIFIER or word not in RESERVED)
            and is_word(token)
        ):
            self._advance()
            name = token.text if token.token_type == TokenType.IDENTIFIER else word
            spelling = located(TypeSpelling(name=[name], modifiers=[], dimensions=0), token)
            return located(exp.Cast(this=self._parse_primary(), to=spelling), token)
        self._retreat(index)
        return None

    def _string_after_type(self) -> bool:
        """Return whether a type of several words may start here and a string follows it."""
        words = _TYPE_WORDS | {"precision", "varying", "with", "without", "zone"}
        for ahead, token in enumerate(self._tokens[self._index : self._index + 12]):
            if token.token_type in STRINGS:
                return ahead > 0
            if not (
                token.text.lower() in words
                or token.token_type == TokenType.NUMBER
                or token.text in ("(", ")", ",")
            ):
                return False
        return False

    def _spelling(self) -> exp.Expr:
        """Parse a type."""
        token = self._curr
        if not token:
            self.fail(None)
        word = token.text.lower()
        if word in _TYPE_WORDS and token.token_type != TokenType.IDENTIFIER:
            spelling = self._standard_type(word, token)
        elif word == "map" and self._next and self._next.text == "[":
            spelling = self._map_type()
        else:
            if word == "setof":
                self.unsupported("SETOF", token.start)
            names = self._names()
            modifiers = self._integers() if self._curr and self._curr.text == "(" else []
            spelling = TypeSpelling(name=names, modifiers=modifiers, dimensions=0)
        spelling = self._with_dimensions(spelling, token)
        while self._curr and self._curr.text.lower() == "list" and is_word(self._curr):
            self._advance()
            spelling = ContainerSpelling(this="list", item=spelling)
            spelling = self._with_dimensions(spelling, token)
        return spelling

    def _map_type(self) -> exp.Expr:
        self._advance(2)
        key = self._spelling()
        if not (self._curr and self._curr.text == "=>"):
            self.fail(self._curr)
        self._advance()
        item = self._spelling()
        if not self._match(TokenType.R_BRACKET):
            self.fail(self._curr)
        return ContainerSpelling(this="map", key=key, item=item)

    def _with_dimensions(self, spelling: exp.Expr, token: Token) -> exp.Expr:
        """Parse the brackets after a type."""
        dimensions = 0
        while self._curr and self._curr.text == "[":
            index = self._index
            self._advance()
            if self._curr and self._curr.token_type == TokenType.NUMBER:
                self._advance()
            if not (self._curr and self._curr.text == "]"):
                self._retreat(index)
                break
            self._advance()
            dimensions += 1
        if self._take("array"):
            dimensions = 1
            if self._match(TokenType.L_BRACKET):
                self._advance(2)
        spelling.set("dimensions", dimensions)
        return located(spelling, token)

    def _standard_type(self, word: str, token: Token) -> exp.Expr:
        self._advance()
        modifiers: list[int] = []
        fields = None
        if word in _ONE_WORD_TYPES:
            name = _ONE_WORD_TYPES[word]
        else:
            match word:
                case "double":
                    self._take("precision")  # optional, as in Materialize
                    name = "float8"
                case "float":
                    digits = self._integers() if self._curr and self._curr.text == "(" else [53]
                    name = "float4" if digits[0] <= 24 else "float8"
                case "decimal" | "dec" | "numeric":
                    name = "numeric"
                    if self._curr and self._curr.text == "(":
                        modifiers = self._integers(quoted=True)
                case "timestamp" | "time":
                    if self._curr and self._curr.text == "(":
                        modifiers = self._integers()
                    zoned = self._take("with", "time", "zone")
                    if not zoned:
                        self._take("without", "time", "zone")
                    name = word + ("tz" if zoned else "")
                case "interval":
                    if self._curr and self._curr.text == "(":
                        modifiers = self._integers()
                    else:
                        fields, modifiers = self._interval_fields()
                    name = "interval"
                case "bit":
                    varying = self._take("varying")
                    given = self._curr and self._curr.text == "("
                    modifiers = self._integers() if given else ([] if varying else [1])
                    name = "varbit" if varying else "bit"
                case _:
                    name, modifiers = self._character_type(word)
        return TypeSpelling(name=[name], modifiers=modifiers, dimensions=0, fields=fields)

    def _character_type(self, word: str) -> tuple[str, list[int]]:
        if word == "national" and not (self._take("character") or self._take("char")):
            self.fail(self._curr)
        varying = word == "varchar" or self._take("varying")
        given = self._curr and self._curr.text == "("
        modifiers = self._integers() if given else ([] if varying else [1])
        return ("varchar" if varying else "bpchar"), modifiers

    def _interval_fields(self) -> tuple[str | None, list[int]]:
        """Parse the fields of an interval and the precision of its seconds."""
        fields = self._field(_INTERVAL_FIELDS)
        if fields is not None and self._take("to"):
            last = self._field(_LAST_FIELDS.get(fields, ()))
            if last is None:
                self.fail(self._curr)
            fields = f"{fields} to {last}"
        digits: list[int] = []
        if fields is not None and fields.endswith("second"):
            digits = self._integers() if self._curr and self._curr.text == "(" else []
        return fields, digits

    def _field(self, fields: tuple[str, ...]) -> str | None:
        return next((field for field in fields if self._take(field)), None)
