"""Parse CREATE SOURCE and ALTER SOURCE."""

from typing import Literal as OneOf

from msgspec.structs import replace

from foreshore.errors import FeatureNotSupported, SyntaxError_
from foreshore.sql import ast
from foreshore.sql.parse.kafka_sources import KafkaSourceParser
from foreshore.sql.parse.webhooks import WebhookParser


class SourceParser(KafkaSourceParser, WebhookParser):
    """Parse statements about sources."""

    def _create_source(self) -> ast.StatementSyntax:
        at = self.last_end
        if_not_exists = self._if_not_exists()
        name = self.table_name()
        columns: tuple[ast.ColumnDefinition, ...] = ()
        watermark: ast.WatermarkDefinition | None = None
        only_names = self.at_symbol("(") and self._names_then("from", "in")
        if only_names:
            columns = self.in_parentheses(self._named_text)
        elif self.at_symbol("("):
            columns, watermark = self._declared_columns(name)
        cluster = self.name() if self.accept("in", "cluster") else None
        self.expect("from")
        reads = self._reads()
        if only_names:
            self._check_named_texts(reads, columns[0])
        tables = self._fed_tables() if self.accept("for") else None
        progress = None
        if self.accept("expose", "progress", "as"):
            progress = self.table_name()
        if self.accept("with"):
            reads = self._with_further(reads)
        return ast.CreateSourceStatement(
            name, cluster, reads, tables, progress, if_not_exists, at, columns, watermark
        )

    def _named_text(self) -> ast.ColumnDefinition:
        """Parse the name of a column whose type is text."""
        name, at = self.name_at()
        return ast.ColumnDefinition(name, ast.TypeName(("text",), (), 0, at), False, None, at)

    def _check_named_texts(self, reads: ast.ReadsSyntax, first: ast.ColumnDefinition) -> None:
        """Raise unless the columns of what is read are texts, so that names are enough."""
        format = reads.messages.value_format if isinstance(reads, ast.KafkaSyntax) else None
        if format is None or format.name not in ("csv", "regex"):
            raise SyntaxError_(
                f'column "{first.name}" has no type',
                hint="Names alone are for FORMAT CSV and REGEX.",
                position=first.at + 1,
            )

    def _with_further(self, reads: ast.ReadsSyntax) -> ast.ReadsSyntax:
        """Return what is read with the options at the end of the statement."""
        options = self._source_options()
        for each in options:
            if each.name == "retain history for":
                raise FeatureNotSupported(
                    "RETAIN HISTORY in CREATE SOURCE is not supported",
                    hint="Write ALTER SOURCE ... SET (RETAIN HISTORY FOR ...) afterwards.",
                    position=each.at + 1,
                )
            if each.name == "size":
                raise SyntaxError_(
                    'unknown option "size" of CREATE SOURCE',
                    hint="IN CLUSTER name, before FROM, says where a source runs.",
                    position=each.at + 1,
                )
            if each.name != "timestamp interval" or not isinstance(reads, ast.KafkaSyntax):
                raise SyntaxError_(
                    f'unknown option "{each.name}" of CREATE SOURCE', position=each.at + 1
                )
        if not options:
            return reads
        assert isinstance(reads, ast.KafkaSyntax)
        return replace(reads, options=(*reads.options, *options))

    def _alter_source(self, name: ast.TableRef, if_exists: bool) -> ast.StatementSyntax | None:
        """Parse ADD, DROP or REFRESH of tables, SET or RESET; None: it is none of these."""
        if self.accept("add"):
            self._subsource_word()
            tables = self.list_of(self._fed_table)
            if self.at_word("with"):
                self.unsupported(
                    "ALTER SOURCE ... ADD TABLE ... WITH",
                    hint="Write CREATE TABLE ... FROM SOURCE ... (REFERENCE ...) WITH (...).",
                )
            return ast.AddSourceTablesStatement(name, tables, if_exists)
        if self.accept("refresh"):
            if self.at_word("references"):
                self.unsupported(
                    "ALTER SOURCE ... REFRESH REFERENCES",
                    hint="It needs none: tables are looked up there whenever they are named.",
                )
            self._subsource_word()
            return ast.RefreshSourceTablesStatement(name, self.list_of(self.table_name), if_exists)
        if self.accept("drop"):
            self._subsource_word()
            may_lack = self.accept("if", "exists")
            names = self.list_of(self.table_name)
            cascade = self.accept("cascade")
            if not cascade:
                self.accept("restrict")
            return ast.DropSourceTablesStatement(name, names, may_lack, cascade, if_exists)
        return self._alter_options("source", name, if_exists)

    def _alter_options(
        self, kind: OneOf["source", "sink"], name: ast.TableRef, if_exists: bool
    ) -> ast.StatementSyntax | None:
        """Parse `SET (option [=] value, ...)` or `RESET (option, ...)`.

        Of a sink also `RESUME` and `SET FROM relation`. Return None if it is none of them.
        """
        if kind == "sink" and self.accept("set", "from"):
            return ast.SetSinkFromStatement(name, self.table_name(), if_exists)
        if kind == "sink" and self.accept("resume"):
            return ast.AlterOptionsStatement(kind, name, (), False, if_exists, resumes=True)
        if not self.at_word("set", "reset") or self.peek(1).value != "(":
            return None
        resets = self.advance().value == "reset"
        options = self._source_options()
        for each in options:
            if resets and each.value is not None:
                raise SyntaxError_("RESET takes no values", position=each.at + 1)
        return ast.AlterOptionsStatement(kind, name, options, resets, if_exists)

    def _subsource_word(self) -> None:
        if not (self.accept("subsource") or self.accept("table")):
            self.fail()

    def _reads(self) -> ast.ReadsSyntax:
        """Parse what is read: each kind of external system has its own form."""
        at = self.token.start
        if self.accept("load", "generator"):
            return ast.GeneratorSyntax(self._words(), self._source_options(), at)
        if self.accept("postgres"):
            self.expect("connection")
            return ast.PostgresSyntax(self.table_name(), self._source_options(), at)
        if self.accept("kafka"):
            self.expect("connection")
            return self._kafka(at)
        if self.accept("files"):
            url = self.string()
            uses = self.table_name() if self.accept("using", "aws", "connection") else None
            return ast.FilesSyntax(url, uses, self._source_options(), at)
        if self.accept("iceberg", "catalog", "connection"):
            return self._iceberg(at)
        if self.accept("python"):
            return self._python(at)
        if self.accept("webhook"):
            return self._webhook()
        for words in (("mysql",), ("sql", "server")):
            if self.at_words(*words):
                raise FeatureNotSupported(
                    f"sources of {' '.join(words).upper()} are not supported",
                    hint="Send its changes to Kafka by Debezium: FROM KAFKA CONNECTION ... "
                    "ENVELOPE DEBEZIUM.",
                    position=at + 1,
                )
        self.fail(
            hint="A source reads FROM LOAD GENERATOR, POSTGRES CONNECTION, KAFKA CONNECTION, FILES,"
            " ICEBERG CATALOG CONNECTION, PYTHON or WEBHOOK."
        )

    def _python(self, at: int) -> ast.PythonSyntax:
        function, arguments, over = self.string(), self._source_options(), None
        if self.accept("over"):
            over = ast.OverSyntax(self.table_name(), self._source_options())
        return ast.PythonSyntax(function, arguments, over, at)

    def _declared_columns(
        self, name: ast.TableRef
    ) -> tuple[tuple[ast.ColumnDefinition, ...], ast.WatermarkDefinition | None]:
        """Parse `(name type [NOT NULL], ..., [WATERMARK FOR ...])`."""
        constraints: list[ast.TableConstraint] = []
        columns: list[ast.ColumnDefinition] = []
        watermarks: list[ast.WatermarkDefinition] = []

        def part() -> None:
            if self.at_words("primary", "key"):
                self.unsupported(
                    "a constraint of a source", hint="ENVELOPE UPSERT makes the key unique."
                )
            if not self._watermark(watermarks):
                columns.append(self._column(name, constraints))

        self.in_parentheses(part)
        if constraints:
            self.unsupported("a constraint on a column of a source", name.at)
        return tuple(columns), next(iter(watermarks), None)

    def _create_webhook(self, name: ast.TableRef, if_not_exists: bool) -> ast.StatementSyntax:
        """Parse what follows `CREATE TABLE name FROM WEBHOOK`: it is a source of that name."""
        return ast.CreateSourceStatement(
            name, None, self._webhook(), None, None, if_not_exists, name.at
        )

    # --- tables --------------------------------------------------------------------------------

    def _create_source_table(
        self,
        name: ast.TableRef,
        columns: tuple[str, ...] | None,
        declared: tuple[ast.ColumnDefinition, ...],
        if_not_exists: bool,
        watermark: ast.WatermarkDefinition | None = None,
    ) -> ast.StatementSyntax:
        """Parse `FROM SOURCE source [(REFERENCE reference)]` and how messages become rows."""
        self.expect("from", "source")
        source, reference = self.table_name(), ""
        if self.accept_symbol("("):
            self.expect("reference")
            self.accept_symbol("=")
            reference = ".".join(self.dotted())
            self.expect_symbol(")")
        messages = self._messages()
        options = self._source_options() if self.accept("with") else ()
        return ast.CreateSourceTableStatement(
            name, columns, declared, source, reference, messages, if_not_exists, watermark, options
        )

    def _fed_tables(self) -> ast.FedTables:
        """Parse what follows FOR."""
        if self.accept("all", "tables"):
            return ast.FedTables(True)
        if self.accept("schemas"):
            return ast.FedTables(False, schemas=self.in_parentheses(self.name))
        self.expect("tables")
        return ast.FedTables(False, tables=self.in_parentheses(self._fed_table))

    def _fed_table(self) -> ast.FedTable:
        reference = self._reference()
        return ast.FedTable(reference, self.table_name() if self.accept("as") else None)
