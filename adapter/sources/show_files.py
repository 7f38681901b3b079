"""SHOW CREATE of sources of files, and of Python functions."""

from foreshore.sources.files import FilesSource
from foreshore.sources.python import PythonSource
from foreshore.sql.parse.keywords import quote_identifier, quote_string


def python_text(spec: PythonSource) -> str:
    """Return what follows FROM."""
    arguments = [
        f"{quote_identifier(name)} {quote_string(value)}" for name, value in spec.arguments.items()
    ]
    return f"PYTHON {quote_string(spec.function)}" + (
        f" ({', '.join(arguments)})" if arguments else ""
    )


def files_text(spec: FilesSource) -> str:
    """Return what follows FROM."""
    options = [f"FORMAT = {quote_string(spec.format)}"]
    if spec.format == "csv":
        options.append(f"HEADER = {'true' if spec.header else 'false'}")
        options.append(f"DELIMITER = {quote_string(spec.delimiter)}")
    options.append(f"FOLLOW = {'true' if spec.follow else 'false'}")
    options.append(f"POLL INTERVAL = '{spec.poll_ms} ms'")
    return f"FILES {quote_string(spec.url)} ({', '.join(options)})"
