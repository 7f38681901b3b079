"""Parse queries and expressions inside statements, with sqlglot from the cursor's position.

A statement parser reads key words and names with the cursor, and calls these methods where the
grammar has a query, an expression, a type or an item of FROM. Each method positions sqlglot's
parser at the current token, runs the production, converts the resulting tree, and moves the cursor
behind it.
"""

from bisect import bisect_left
from collections.abc import Callable
from operator import attrgetter
from types import TracebackType
from typing import Any, Self, TypeVar

from sqlglot import exp
from sqlglot.tokens import Token as SqlglotToken

from foreshore.sql import ast
from foreshore.sql.parse.cursor import Cursor
from foreshore.sql.parse.dialect import new_parser
from foreshore.sql.parse.from_sqlglot import Converter
from foreshore.sql.parse.grammar.base import OPERAND
from foreshore.sql.parse.grammar.query import Parser
from foreshore.sql.parse.grammar.word_classes import NOT_COLUMN
from foreshore.sql.parse.lexer import QUOTED, WORD, Token, tokenize
from foreshore.sql.parse.long_lists import Lists

T = TypeVar("T")

_START: Callable[[Token | SqlglotToken], int] = attrgetter("start")


class QueryParser(Cursor):
    """Parse queries, expressions and their parts."""

    def __init__(
        self, text: str, tokens: list[Token], found: list[SqlglotToken], lists: Lists | None = None
    ) -> None:
        super().__init__(text, tokens)
        self._found = found
        self._parser = new_parser()
        self._converter = Converter(text, self._statement_of)
        self._converter.lists = {} if lists is None else lists
        self._rests = dict(gap for rest in self._converter.lists.values() for gap in rest.gaps)

    @property
    def last_end(self) -> int:
        """Return the end of the previous token, and of the rest of a long list that it begins."""
        end = super().last_end
        return self._rests.get(end, end)

    def within_string(self, parse: Callable[[Self], T]) -> T:
        """Parse the text in the current string constant, all of it, and move behind the constant.

        Positions are those of the characters of the constant, as long as none of them are doubled.
        """
        start = self.token.start + 1
        text = " " * start + self.string()
        inside = type(self)(text, *tokenize(text))
        inside.depth = self.depth
        found = parse(inside)
        if not inside.at_end():
            inside.fail()
        return found

    def statement(self) -> ast.StatementSyntax:
        """Parse the current statement to its end."""
        raise NotImplementedError  # `StatementParser` knows all statements

    def _statement_of(self, text: str) -> ast.StatementSyntax:
        """Return the only statement of `text`."""
        return type(self)(text, *tokenize(text)).statement()

    def mark(self) -> tuple[int, Lists]:
        """Return the position, and the rests of lists that no node has yet."""
        return self.index, dict(self._converter.lists)

    def go_back(self, mark: tuple[int, Lists]) -> None:
        """Go back to a position that `mark` has returned."""
        index, lists = mark
        self.go_to(index)
        self._converter.lists.update(lists)

    def _through(self, produce: Callable[[Parser], Any], convert: Callable[[Any], T]) -> T:
        """Parse one production with sqlglot."""
        index = bisect_left(self._found, self.token.start, key=_START)
        if index == len(self._found) or self._found[index].start != self.token.start:
            self.fail()
        self._parser.start_at(self.text, self._found, index)
        try:
            node = produce(self._parser)
        except Exception as error:
            _unlink_in_frames(error.__traceback__)
            raise
        try:
            after = self._parser.position()
            if node is None or after == index:
                self.fail()
            start = self._found[after].start if after < len(self._found) else len(self.text)
            ours = bisect_left(self.tokens, start, key=_START)
            assert self.tokens[ours].start == start, "a token of sqlglot's that is none of ours"
            self.go_to(ours)
            return convert(node)
        finally:
            _unlink(node)

    def query(self) -> ast.Query:
        """Parse a query with its WITH and ORDER BY."""
        return self._through(lambda parser: parser.parse_query(), self._converter.query)

    def as_of(self) -> ast.AsOf | None:
        """Parse AS OF [AT LEAST] time, if present."""
        if not self.accept("as", "of"):
            return None
        at_least = self.accept("at", "least")
        return ast.AsOf(self.expression(), at_least)

    def expression(self, level: int = 0) -> ast.Expression:
        """Parse an expression whose loosest operator is of `level` or tighter."""
        return self._through(lambda parser: parser.parse_level(level), self._converter.expression)

    def operand(self) -> ast.Expression:
        """Parse an operand of an operator."""
        return self.expression(OPERAND)

    def type_name(self) -> ast.TypeName:
        """Parse a type."""
        return self._through(lambda parser: parser.parse_spelling(), self._converter.type)

    def target(self) -> ast.Target:
        """Parse an item of a select list."""
        return self._through(lambda parser: parser.parse_target(), self._converter.target)

    def from_item(self) -> ast.FromItem:
        """Parse an item of FROM with the joins that follow it."""
        return self._through(lambda parser: parser.parse_from_item(), self._converter.from_item)

    def with_clause(self) -> tuple[tuple[ast.CommonTable, ...], bool | ast.MutualRecursion]:
        """Parse WITH, if present."""
        if not self.at_word("with"):
            return (), False
        return self._through(lambda parser: parser.parse_with(), self._converter.with_clause)

    def table_name(self) -> ast.TableRef:
        """Parse the name of an item."""
        at = self.token.start
        name = self.dotted()
        return ast.TableRef(name, None, (), at, self.last_end)

    def any_name(self) -> tuple[str, ...]:
        """Return a dotted name whose first part may be the name of a function or type."""
        parts = [self.name_or_function()]
        while self.accept_symbol("."):
            parts.append(self.label())
        return tuple(parts)

    def alias(self) -> tuple[str | None, tuple[str, ...]]:
        """Parse `[AS] alias [(columns)]`, if present."""
        if self.at_words("as", "of") or self.at_words("up", "to"):
            return None, ()
        if self.accept("as"):
            alias = self.name()
        elif self.token.kind == QUOTED or (
            self.token.kind == WORD and self.token.value not in NOT_COLUMN
        ):
            alias = self.advance().value
        else:
            return None, ()
        return alias, self.in_parentheses(self.name) if self.at_symbol("(") else ()

    def parenthesised_query(self) -> ast.Query:
        """Parse a query in parentheses."""
        self.expect_symbol("(")
        query = self.query()
        self.expect_symbol(")")
        return query


def first_select(query: ast.Query) -> ast.Select | None:
    """Return the first SELECT of a query, after its WITH."""
    body: ast.Select | ast.Values | ast.SetOperation | ast.Query = query
    while True:
        match body:
            case ast.Query(body=inner):
                body = inner
            case ast.SetOperation(inputs=inputs):
                body = inputs[0]
            case ast.Select():
                return body
            case ast.Values():
                return None


def _unlink(root: Any) -> None:
    """Remove the links from nodes to their parents, so that the tree needs no garbage collection.

    A tree of a long text has hundreds of thousands of objects. A collection of as many stops all
    threads for a tenth of a second.
    """
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, exp.Expr):
            node.parent = None
            stack.extend(node.args.values())
        elif isinstance(node, list):
            stack.extend(node)


def _unlink_in_frames(traceback: TracebackType | None) -> None:
    """Unlink the nodes that a failed production has made so far; its frames hold them."""
    assert traceback is not None
    while (traceback := traceback.tb_next) is not None:
        for value in traceback.tb_frame.f_locals.values():
            _unlink(value)
