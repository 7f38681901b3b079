"""SHOW CREATE of sources of files."""

from foreshore.sources.files import FilesSource
from foreshore.sql.parse.keywords import quote_string


def files_text(spec: FilesSource) -> str:
    """Return what follows FROM."""
    options = [f"FORMAT = {quote_string(spec.format)}"]
    if spec.format == "csv":
        options.append(f"HEADER = {'true' if spec.header else 'false'}")
        options.append(f"DELIMITER = {quote_string(spec.delimiter)}")
    options.append(f"FOLLOW = {'true' if spec.follow else 'false'}")
    options.append(f"POLL INTERVAL = '{spec.poll_ms} ms'")
    return f"FILES {quote_string(spec.url)} ({', '.join(options)})"
