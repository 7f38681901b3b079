"""TLS to external systems, by the certificates of a connection."""

import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path

from foreshore.errors import InvalidParameterValue


def certificates(options: Mapping[str, str]) -> ssl.SSLContext:
    """Return a context that trusts a connection's authority, and has its certificate.

    Raises InvalidParameterValue if one of them is not in PEM form.
    """
    try:
        context = ssl.create_default_context(cadata=options.get("ssl certificate authority"))
        if "ssl certificate" in options:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "client.pem")
                path.touch(mode=0o600)
                path.write_text(options["ssl certificate"] + "\n" + options.get("ssl key", ""))
                context.load_cert_chain(path)
    except (ssl.SSLError, ValueError) as error:
        raise InvalidParameterValue(f"a certificate of the connection is wrong: {error}") from None
    return context
