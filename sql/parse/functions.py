"""Parse CREATE, ALTER and DROP FUNCTION."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from foreshore.errors import (
    FeatureNotSupported,
    InvalidFunctionDefinition,
    SyntaxError_,
    UndefinedObject,
)
from foreshore.sql import ast
from foreshore.sql.parse.lexer import NUMBER, QUOTED, STRING, WORD
from foreshore.sql.parse.roles import RoleParser

T = TypeVar("T")
_AFTER_TYPE = frozenset((",", ")", "=", "default", ":="))
_IGNORED = (
    ("window",),
    ("not", "leakproof"),
    ("leakproof",),
    ("called", "on", "null", "input"),
    ("external", "security", "invoker"),
    ("security", "invoker"),
    ("parallel", "safe"),
    ("parallel", "unsafe"),
    ("parallel", "restricted"),
)


@dataclass
class _Options:
    """The clauses after the parameters of CREATE FUNCTION, which come in any order."""

    returns: ast.TypeName | None = None
    columns: tuple[tuple[str, ast.TypeName], ...] = ()
    returns_set: bool = False
    strict: bool = False
    volatility: str = "volatile"
    language: str | None = None
    body: str | None = None
    body_at: int | None = None
    is_expression: bool = False


class FunctionParser(RoleParser):
    """Parse statements about functions."""

    def _create_function(self, or_replace: bool) -> ast.StatementSyntax:
        name = self.table_name()
        parameters = self._in_brackets(self._function_parameter)
        options = _Options()
        while not self.at_end():
            self._function_option(options)
        if options.body is None:
            raise InvalidFunctionDefinition("no function body specified")
        if options.body_at is None and options.language is None:
            raise InvalidFunctionDefinition("no language specified")
        if options.body_at is not None and options.language == "python":
            raise InvalidFunctionDefinition("inline SQL function body only valid for language SQL")
        return ast.CreateFunctionStatement(
            name,
            parameters,
            options.returns,
            options.columns,
            options.returns_set,
            options.strict,
            options.volatility,  # type: ignore[arg-type]
            options.body,
            options.body_at,
            options.is_expression,
            or_replace,
            options.language or "sql",  # type: ignore[arg-type]
        )

    def _create_aggregate(self, or_replace: bool) -> ast.StatementSyntax:
        """Parse CREATE AGGREGATE name(type) (SFUNC = array_append, STYPE = type[], FINALFUNC = f).

        A state of any other kind would be computed by a function of users for each row.
        """
        name = self.table_name()
        parameters = self._in_brackets(self._function_parameter)
        at = self.token.start
        options = dict(self._in_brackets(self._aggregate_option))
        missing = [each for each in ("sfunc", "stype", "finalfunc") if each not in options]
        if missing:
            raise InvalidFunctionDefinition(f"aggregate {missing[0]} must be specified")
        if options["sfunc"].rpartition(".")[2] != "array_append":
            raise FeatureNotSupported(
                "an SFUNC other than array_append is not supported",
                hint="FINALFUNC gets the array of a group's values.",
                position=at + 1,
            )
        if len(parameters) != 1 or parameters[0].variadic or parameters[0].out:
            raise FeatureNotSupported("an aggregate of other than one argument is not supported")
        return ast.CreateFunctionStatement(
            name,
            parameters,
            None,
            (),
            False,
            False,
            "immutable",
            f"{options['finalfunc']}($1)",
            None,
            True,
            or_replace,
            is_aggregate=True,
        )

    def _aggregate_option(self) -> tuple[str, str]:
        """Parse an option of CREATE AGGREGATE; return its name and its text."""
        if not self.at_word("sfunc", "stype", "finalfunc"):
            self.unsupported(f"{self.token.value.upper()} of an aggregate")
        name = self.advance().value
        self.expect_symbol("=")
        start = self.token.start
        self.type_name() if name == "stype" else self.table_name()
        return name, self.text[start : self.last_end]

    def _in_brackets(self, one: Callable[[], T]) -> tuple[T, ...]:
        self.expect_symbol("(")
        items = () if self.at_symbol(")") else self.list_of(one)
        self.expect_symbol(")")
        return items

    # --- parameters

    def _function_parameter(self) -> ast.ParameterDefinition:
        mode = ""
        if self.at_word("in", "out", "inout", "variadic"):
            mode = self.advance().value
        if mode == "in" and self.accept("out"):
            mode = "inout"
        name, type = self._name_and_type()
        default, at = None, 0
        if self.accept("default") or self.accept_symbol("="):
            at = self.token.start
            self.expression()
            default = self.text[at : self.last_end]
        out, given = mode in ("out", "inout"), mode != "out"
        return ast.ParameterDefinition(name, type, default, at, out, given, mode == "variadic")

    def _name_and_type(self) -> tuple[str, ast.TypeName]:
        """Parse `[name] type`; a name is a word that is followed by a type."""
        if self.peek().value in _AFTER_TYPE or self.peek().value in ("(", "[", "."):
            return "", self.type_name()
        mark = self.mark()
        try:
            type = self.type_name()
            if self.token.value in _AFTER_TYPE:
                return "", type
        except (SyntaxError_, FeatureNotSupported):
            pass
        self.go_back(mark)
        return self.name_or_function(), self.type_name()

    # --- options

    def _function_option(self, options: _Options) -> None:
        if any(self.accept(*words) for words in _IGNORED):
            return
        if self.accept("strict") or self.accept("returns", "null", "on", "null", "input"):
            options.strict = True
        elif self.accept("returns", "table"):
            options.columns, options.returns_set = self.in_parentheses(self._returned_column), True
        elif self.accept("returns"):
            options.returns_set = self.accept("setof")
            options.returns = self.type_name()
        elif self.at_word("immutable", "stable", "volatile"):
            options.volatility = self.advance().value
        elif self.at_word("cost", "rows"):
            self.advance()
            if self.token.kind != NUMBER:
                self.fail()
            self.advance()
        elif self.accept("language"):
            self._function_language(options)
        elif self.at_word("set", "support", "transform", "security", "external"):
            self.unsupported(f"{self.token.value.upper()} of a function")
        else:
            self._function_body(options)

    def _returned_column(self) -> tuple[str, ast.TypeName]:
        return self.name(), self.type_name()

    def _function_language(self, options: _Options) -> None:
        token = self.token
        if token.kind not in (WORD, QUOTED, STRING):
            self.fail()
        language = self.advance().value.lower()
        if language in ("plpgsql", "c", "internal"):
            self.unsupported(f"LANGUAGE {language}", token.start)
        if language in ("plpythonu", "plpython3u"):
            raise FeatureNotSupported(
                f"LANGUAGE {language} is not supported",
                hint="LANGUAGE python takes a module that defines the function: def name(...): ...",
                position=token.start + 1,
            )
        if language not in ("sql", "python"):
            raise UndefinedObject(f'language "{language}" does not exist')
        options.language = language

    def _function_body(self, options: _Options) -> None:
        if options.body is not None:
            self.fail()
        if self.accept("as"):
            options.body = self.string()
            if self.at_symbol(","):
                self.fail()
            return
        if self.accept("return"):
            start = self.token.start
            self.expression()
            options.is_expression = True
        elif self.accept("begin", "atomic"):
            start = self.token.start
            if not self.at_word("select", "with", "values", "table") and not self.at_symbol("("):
                self.unsupported("a body of other statements than one query")
            self.query()
        else:
            self.fail()
        options.body, options.body_at = self.text[start : self.last_end], start
        if not options.is_expression:
            self.expect_symbol(";")
            if not self.at_word("end"):
                self.unsupported("a body of several statements")
            self.expect("end")

    # --- ALTER, COMMENT, DROP

    def _alter_function(self) -> ast.StatementSyntax:
        function = self._function_name()
        if self.accept("rename", "to"):
            return ast.AlterFunctionStatement(function, "rename", self.name())
        if self.accept("owner", "to"):
            return ast.AlterFunctionStatement(function, "owner", role=self.role_name())
        if self.accept("set", "schema"):
            return ast.AlterFunctionStatement(function, "schema", self.name())
        strict, volatility, given = None, None, False
        while not self.at_end() and not self.accept("restrict"):
            given = True
            options = _Options()
            if self.accept("called", "on", "null", "input"):
                strict = False
            elif self.at_word("returns", "strict"):
                self._function_option(options)
                strict = True
            elif self.at_word("immutable", "stable", "volatile"):
                volatility = self.advance().value
            elif self.at_word("reset", "as", "return", "begin", "language", "depends", "no"):
                self.fail()
            else:
                self._function_option(options)
        if not given:
            self.fail()
        return ast.AlterFunctionStatement(function, "attributes", None, strict, volatility)  # type: ignore[arg-type]

    def _comment_on_function(self) -> ast.StatementSyntax:
        function = self._function_name()
        self.expect("is")
        text = None if self.accept("null") else self.string()
        return ast.AlterFunctionStatement(function, "comment", text)

    def _drop_function(self) -> ast.StatementSyntax:
        if_exists = self.accept("if", "exists")
        functions = self.list_of(self._function_name)
        cascade = self.accept("cascade")
        if not cascade:
            self.accept("restrict")
        return ast.DropFunctionStatement(functions, if_exists, cascade)

    def _function_name(self) -> ast.FunctionName:
        name = self.table_name()
        if not self.at_symbol("("):
            return ast.FunctionName(name, None)
        parameters = self._in_brackets(self._function_parameter)
        return ast.FunctionName(name, tuple(each.type for each in parameters if each.given))
