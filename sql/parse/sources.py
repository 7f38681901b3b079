"""Parse CREATE SOURCE."""

from foreshore.sql import ast
from foreshore.sql.parse.clusters import ClusterParser


class SourceParser(ClusterParser):
    """Parse statements about sources."""

    def _create_source(self) -> ast.StatementSyntax:
        at = self.last_end
        if_not_exists = self._if_not_exists()
        name = self.table_name()
        cluster = self.name() if self.accept("in", "cluster") else None
        self.expect("from")
        reads = self._reads()
        tables: tuple[ast.FedTable, ...] | None = None
        if self.accept("for", "all", "tables"):
            tables = ()
        elif self.accept("for", "tables"):
            tables = self.in_parentheses(self._fed_table)
        progress = None
        if self.accept("expose", "progress", "as"):
            progress = self.table_name()
        return ast.CreateSourceStatement(name, cluster, reads, tables, progress, if_not_exists, at)

    def _reads(self) -> ast.GeneratorSyntax:
        at = self.token.start
        if self.accept("load", "generator"):
            generator = self._words()
            options = self.in_parentheses(self._source_option) if self.at_symbol("(") else ()
            return ast.GeneratorSyntax(generator, options, at)
        if self.at_word("mysql", "sql", "postgres", "kafka", "webhook", "files", "python"):
            self.unsupported(f"CREATE SOURCE ... FROM {self.token.value.upper()}", at)
        self.fail()

    def _words(self) -> str:
        """Parse the words before a parenthesis, FOR, EXPOSE or the end."""
        words = [self.label()]
        while not (self.at_end() or self.at_symbol("(") or self.at_word("for", "expose")):
            words.append(self.label())
        return " ".join(words)

    def _source_option(self) -> ast.SourceOption:
        """Parse `WORDS [=] value`."""
        at = self.token.start
        words = [self.label()]
        while not (self.at_symbol("=") or self.at_literal() or self._at_option_end()):
            words.append(self.label())
        self.accept_symbol("=")
        value = None if self._at_option_end() else self.advance().value
        return ast.SourceOption(" ".join(words), value, at)

    def _at_option_end(self) -> bool:
        return self.at_symbol(",") or self.at_symbol(")")

    def _fed_table(self) -> ast.FedTable:
        reference = ".".join(self.dotted())
        return ast.FedTable(reference, self.table_name() if self.accept("as") else None)

    def _create_fed_table(self) -> ast.StatementSyntax:
        name = self.table_name()
        self.expect("of")
        self.expect("source")
        source = self.table_name()
        self.expect_symbol("(")
        self.expect("reference")
        self.expect_symbol("=")
        reference = self.string()
        self.expect_symbol(")")
        return ast.CreateFedTableStatement(name, source, reference)
