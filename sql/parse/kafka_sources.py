"""Parse KAFKA CONNECTION: formats, what is included, and envelopes."""

from foreshore.errors import SyntaxError_
from foreshore.sql import ast
from foreshore.sql.parse.source_options import SourceOptionParser

_INCLUDED = ("key", "partition", "offset", "timestamp", "headers", "header")
_ENVELOPES = ("none", "upsert", "debezium")


class KafkaSourceParser(SourceOptionParser):
    """Parse what a Kafka source reads."""

    def _kafka(self, at: int) -> ast.KafkaSyntax:
        """Parse what follows KAFKA CONNECTION."""
        connection, options = self.table_name(), self._source_options()
        return ast.KafkaSyntax(connection, options, self._messages(), at)

    def _messages(self) -> ast.MessagesSyntax:
        """Parse FORMAT, INCLUDE and ENVELOPE, each of which may lack."""
        at = self.token.start
        key, value = None, None
        if self.accept("key", "format"):
            key = self._format()
            self.expect("value", "format")
            value = self._format()
        elif self.accept("format"):
            value = self._format()
        includes: tuple[ast.IncludeSyntax, ...] = ()
        if self.accept("include"):
            includes = self.list_of(self._include)
        envelope, errors = "none", None
        if self.accept("envelope"):
            if self.at_word("materialize"):
                self.unsupported("ENVELOPE MATERIALIZE", hint="Use NONE, UPSERT or DEBEZIUM.")
            envelope = self._one_of(*_ENVELOPES)
            if envelope == "upsert" and self.accept_symbol("("):
                errors = self._inline_errors()
                self.expect_symbol(")")
        return ast.MessagesSyntax(key, value, includes, envelope, errors, at)

    def _one_of(self, *words: str) -> str:
        if not self.at_word(*words):
            self.fail()
        return self.advance().value

    def _inline_errors(self) -> str:
        """Parse `VALUE DECODING ERRORS [=] INLINE [AS name]`; return the name of the column."""
        self.expect("value", "decoding", "errors")
        self.accept_symbol("=")
        in_parentheses = self.accept_symbol("(")
        self.expect("inline")
        name = self.name() if self.accept("as") else "error"
        if in_parentheses:
            self.expect_symbol(")")
        return name

    def _include(self) -> ast.IncludeSyntax:
        at, what = self.token.start, self._one_of(*_INCLUDED)
        header = self.string() if what == "header" else None
        name = self.name() if self.accept("as") else None
        is_bytes = what == "header" and self.accept("bytes")
        return ast.IncludeSyntax(what, header, name, is_bytes, at)

    # --- formats -------------------------------------------------------------------------------

    def _format(self) -> ast.FormatSyntax:
        at = self.token.start
        name = self.label()
        match name:
            case "json" | "text" | "bytes":
                return ast.FormatSyntax(name, at)
            case "regex":
                return ast.FormatSyntax(name, at, schema=self.string())
            case "csv":
                return self._csv(at)
            case "avro":
                return self._with_schema(name, None, at)
            case "protobuf":
                message = self.string() if self.accept("message") else None
                return self._with_schema(name, message, at)
        self.unsupported(f"FORMAT {name.upper()}", at)

    def _csv(self, at: int) -> ast.FormatSyntax:
        """Parse `WITH n COLUMNS` or `WITH HEADER (name, ...)`, and `DELIMITED BY 'x'`."""
        self.accept("with")
        columns: int | tuple[str, ...]
        if self.accept("header"):
            columns = self.in_parentheses(self.name)
        else:
            columns = self.integer()
            self.expect("columns")
        options: tuple[ast.SourceOption, ...] = ()
        if self.accept("delimited", "by"):
            options = (ast.SourceOption("delimiter", self.string(), at),)
        return ast.FormatSyntax("csv", at, columns=columns, options=options)

    def _with_schema(self, name: str, message: str | None, at: int) -> ast.FormatSyntax:
        """Parse USING: a schema, or the connection to a registry that has it, and options."""
        self.expect("using")
        if self.accept("schema"):
            schema = self.string()
            options = self._source_options()
            return ast.FormatSyntax(name, at, schema=schema, message=message, options=options)
        is_glue = self.accept("aws", "glue")
        if is_glue and name != "avro":
            self.unsupported(f"FORMAT {name.upper()} with a registry of AWS Glue", at)
        if not is_glue:
            self.expect("confluent")
        self.expect("schema", "registry", "connection")
        registry, strategies = self.table_name(), self._strategies() if name == "avro" else ()
        if name == "avro" and not strategies and self.at_word("seed"):
            strategies = self._seeds()
        found: tuple[ast.SourceOption | ast.DocSyntax, ...] = ()
        if self.at_symbol("("):
            found = self.in_parentheses(self._schema_option)
        return ast.FormatSyntax(
            name,
            at,
            registry,
            None,
            message,
            options=tuple(each for each in found if isinstance(each, ast.SourceOption)),
            strategies=strategies,
            glue=is_glue,
            docs=tuple(each for each in found if isinstance(each, ast.DocSyntax)),
        )

    def _schema_option(self) -> ast.SourceOption | ast.DocSyntax:
        """Parse an option of a schema, or `[KEY | VALUE] DOC ON ...`."""
        at, of = self.token.start, ""
        for part in ("key", "value"):
            if self.at_words(part, "doc", "on"):
                of = self.advance().value
        if not self.accept("doc", "on"):
            return self._source_option()
        is_column = self.accept("column")
        if not is_column:
            self.expect("type")
        relation, column = self.dotted(), None
        if is_column:
            if len(relation) < 2:
                self.fail()
            *others, column = relation
            relation = tuple(others)
        self.accept_symbol("=")
        return ast.DocSyntax(of, relation, column, self.string(), at)

    def _seeds(self) -> tuple[ast.StrategySyntax, ...]:
        """Parse `SEED [KEY SCHEMA 'schema'] VALUE SCHEMA 'schema'`: the same as INLINE."""
        self.expect("seed")
        found: list[ast.StrategySyntax] = []
        at = self.token.start
        if self.accept("key", "schema"):
            found.append(ast.StrategySyntax("key", self.string(), at))
            at = self.token.start
        self.expect("value", "schema")
        return (*found, ast.StrategySyntax("value", self.string(), at))

    def _strategies(self) -> tuple[ast.StrategySyntax, ...]:
        """Parse `KEY STRATEGY s` and `VALUE STRATEGY s`: LATEST, ID n or INLINE 'schema'."""
        found: list[ast.StrategySyntax] = []
        while self.at_words("key", "strategy") or self.at_words("value", "strategy"):
            at, of = self.token.start, self.advance().value
            self.advance()
            pinned: int | str | None = None
            if self.accept("id"):
                pinned = self.integer()
            elif self.accept("inline"):
                pinned = self.string()
            else:
                self.expect("latest")
            if any(each.of == of for each in found):
                raise SyntaxError_(f"{of.upper()} STRATEGY is given twice", position=at + 1)
            found.append(ast.StrategySyntax(of, pinned, at))
        return tuple(found)
