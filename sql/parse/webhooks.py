"""Parse FROM WEBHOOK of CREATE SOURCE."""

from foreshore.errors import SyntaxError_
from foreshore.sql import ast
from foreshore.sql.parse.clusters import ClusterParser


class WebhookParser(ClusterParser):
    """Parse webhooks."""

    def _webhook(self) -> ast.WebhookSyntax:
        """Parse what follows WEBHOOK."""
        at = self.last_end
        self.expect("body", "format")
        body = self._body_format()
        headers: list[ast.HeaderSyntax] = []
        without: tuple[str, ...] = ()
        every = False
        while self.accept("include"):
            if self.accept("headers"):
                every = True
                if self.at_symbol("("):
                    without = self.in_parentheses(self._left_out_header)
            else:
                self.expect("header")
                header = self.string().lower()
                self.expect("as")
                headers.append(ast.HeaderSyntax(header, self.name(), self.accept("bytes")))
            self.accept_symbol(",")
        check, inputs = self._webhook_check() if self.accept("check") else ("", ())
        return ast.WebhookSyntax(body, tuple(headers), every, without, check, inputs, at)

    def _body_format(self) -> str:
        if self.accept("json", "array"):
            return "json array"
        for word in ("json", "text", "bytes"):
            if self.accept(word):
                return word
        self.fail()

    def _left_out_header(self) -> str:
        self.expect("not")
        return self.string().lower()

    def _webhook_check(self) -> tuple[str, tuple[ast.CheckInputSyntax, ...]]:
        """Parse `([WITH (input, ...)] condition)`."""
        self.expect_symbol("(")
        inputs: tuple[ast.CheckInputSyntax, ...] = (
            ast.CheckInputSyntax("headers", None, None, False),
            ast.CheckInputSyntax("body", None, None, False),
        )
        if self.accept("with"):
            inputs = self.in_parentheses(self._check_input)
        start = self.token.start
        self.expression()
        text = self.text[start : self.last_end]
        self.expect_symbol(")")
        return text, inputs

    def _check_input(self) -> ast.CheckInputSyntax:
        """Parse `HEADERS | BODY | SECRET name`, `[AS name] [BYTES]`."""
        what, secret = self.label(), None
        if what == "secret":
            secret = self.table_name()
        elif what not in ("body", "headers"):
            raise SyntaxError_(
                f'"{what}" is no part of a request',
                hint="There are HEADERS, BODY and SECRET name.",
                position=self.last_end,
            )
        column = self.name() if self.accept("as") else None
        return ast.CheckInputSyntax(what, secret, column, self.accept("bytes"))
