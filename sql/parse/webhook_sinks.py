"""Parse WEBHOOK as the target of a sink."""

from foreshore.sql import ast
from foreshore.sql.parse.sources import SourceParser


class WebhookSinkParser(SourceParser):
    """Parse the options of a webhook that gets changes."""

    def _webhook_target(self, at: int) -> ast.TargetSyntax:
        """Parse `(URL '...', SECRET name, HEADER 'name' = value, option ...)`."""
        secret: ast.TableRef | None = None
        headers: list[ast.SinkHeaderSyntax] = []
        options: list[ast.SourceOption] = []

        def option() -> None:
            nonlocal secret
            if secret is None and self.accept("secret"):
                self.accept_symbol("=")
                secret = self.table_name()
            elif self.at_word("header"):
                headers.append(self._sink_header())
            else:
                options.append(self._source_option())

        if self.at_symbol("("):
            self.in_parentheses(option)
        return ast.WebhookTargetSyntax(tuple(options), tuple(headers), secret, at)

    def _sink_header(self) -> ast.SinkHeaderSyntax:
        """Parse `HEADER 'name' [=] 'value'` or `HEADER 'name' [=] SECRET name`."""
        at = self.expect("header").start
        name = self.string()
        self.accept_symbol("=")
        if self.accept("secret"):
            return ast.SinkHeaderSyntax(name, "", self.table_name(), at)
        return ast.SinkHeaderSyntax(name, self.string(), None, at)
