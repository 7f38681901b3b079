"""The options of `foreshore serve`, each of which can also be given in the environment."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from foreshore.logs import FORMATS
from foreshore.memory_shares import MB, QUERIES
from foreshore.python_functions.limits import DEFAULT_KEPT, DEFAULT_MEGABYTES, DEFAULT_SECONDS
from foreshore.server.config_file import config_option
from foreshore.server.protocol import MOST
from foreshore.server.tls import TlsFiles

FC = TypeVar("FC", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """The options of `foreshore serve`."""

    data_dir: Path
    pg_listen: str
    http_listen: str
    socket_dir: Path | None
    blob: str | None
    consensus: str | None
    segment_bytes: int | None
    spark_master: str
    spark_compaction: int | None
    spark_conf: tuple[str, ...]
    copy_dir: tuple[str, ...]
    python_source_module: tuple[str, ...]
    python_functions: bool
    python_function_timeout: float
    python_function_memory: int
    python_function_answers: int
    audit_interval: float
    tls_cert: Path | None
    tls_key: Path | None
    tls_ca: Path | None
    http_tls: bool
    http_origin: tuple[str, ...]
    http_host: tuple[str, ...]
    hba_file: Path | None
    ident_file: Path | None
    secrets_key_file: Path | None
    max_connections: int
    superuser_reserved_connections: int
    query_memory: int
    max_message_size: int
    metrics_views: int
    trace_endpoint: str | None
    log_format: str
    log_level: str | None
    shutdown_timeout: float
    checkpoint_interval: float
    checkpoint_size: float
    insecure_no_auth: bool
    allow_group_access: bool
    pass_environment: tuple[str, ...]
    connector_memory: int | None
    lifeline: bool
    take_over: bool
    password: str | None

    @property
    def spark_properties(self) -> dict[str, str]:
        """The properties of Spark; raises BadParameter."""
        return spark_properties(self.spark_conf)

    @property
    def tls(self) -> TlsFiles | None:
        """The files of TLS, None if it is not configured; raises BadParameter."""
        cert, key, ca = self.tls_cert, self.tls_key, self.tls_ca
        if cert is not None and key is not None:
            return TlsFiles(cert, key, ca)
        if cert is not None or key is not None or ca is not None or self.http_tls:
            raise click.BadParameter(
                "--tls-cert and --tls-key are needed together, and for --tls-ca and --http-tls"
            )
        return None


def address(text: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`; an IPv6 host may be in brackets.

    Of `none`, which listens nowhere, the host is empty.
    """
    if text == "none":
        return "", 0
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or not int(port) < 65536:
        raise click.BadParameter(f"{text!r} is not HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def spark_properties(given: Sequence[str]) -> dict[str, str]:
    """Return properties given as `spark.NAME=VALUE`; raises BadParameter."""
    found = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name.startswith("spark."):
            raise click.BadParameter(f"{each!r} is not spark.NAME=VALUE")
        found[name] = value
    return found


def option(name: str, **attributes: Any) -> Callable[[FC], FC]:
    """Return an option that can also be given in the environment."""
    variable = f"FORESHORE_{name.upper().replace('-', '_')}"
    return click.option(f"--{name}", envvar=variable, show_default=True, **attributes)


_FILE = click.Path(path_type=Path, resolve_path=True, dir_okay=False)

_OPTIONS = (
    option(
        "data-dir",
        type=click.Path(path_type=Path, resolve_path=True),
        default="data",
        help="The data directory.",
    ),
    option(
        "pg-listen",
        default="127.0.0.1:6875",
        metavar="HOST:PORT|none",
        help="Address for SQL.",
    ),
    option(
        "http-listen",
        default="127.0.0.1:6876",
        metavar="HOST:PORT|none",
        help="Address for SQL over HTTP, /health and /metrics.",
    ),
    option(
        "http-origin",
        multiple=True,
        metavar="URL",
        help="An origin whose pages may run SQL, such as https://app.example.com;"
        " may be given several times.",
    ),
    option(
        "http-host",
        multiple=True,
        metavar="NAME",
        help="A name by which clients without a password, and those of /metrics and of webhooks"
        " without CHECK, call the HTTP server, beside its addresses and localhost;"
        " may be given several times.",
    ),
    option(
        "socket-dir",
        type=click.Path(path_type=Path, resolve_path=True, file_okay=False),
        metavar="DIR",
        help="A directory for a Unix socket, on which SQL is served, too; default: none.",
    ),
    option(
        "blob",
        metavar="URI",
        help="Store of batches: file:///PATH or s3://BUCKET/PREFIX; default: the data directory.",
    ),
    option(
        "consensus",
        metavar="URI",
        help="sqlite:///PATH or postgresql://HOST/DATABASE; default: the data directory.",
    ),
    option(
        "segment-bytes",
        type=click.IntRange(4096),
        metavar="BYTES",
        help="Size at which the log begins a new segment; default: 32 MiB.",
    ),
    option(
        "spark-master", default="local[*]", metavar="URI", help="Spark of clusters of size spark."
    ),
    option(
        "spark-compaction",
        type=click.IntRange(1),
        metavar="GB",
        help="Size of batches from which on Spark merges them; default: never.",
    ),
    option(
        "spark-conf",
        multiple=True,
        metavar="spark.NAME=VALUE",
        help="A property of Spark; may be given several times.",
    ),
    option(
        "copy-dir",
        multiple=True,
        metavar="PLACE",
        help="A directory, or s3://BUCKET/PREFIX, whose files COPY may read and write;"
        " may be given several times.",
    ),
    option(
        "python-source-module",
        multiple=True,
        metavar="MODULE",
        help="A module whose functions superusers may call in CREATE SOURCE FROM PYTHON and"
        " CREATE SINK INTO PYTHON;"
        " may be given several times.",
    ),
    option(
        "python-function-timeout",
        type=click.FloatRange(0.1),
        default=DEFAULT_SECONDS,
        metavar="SECONDS",
        help="How long a function in Python may take for a row.",
    ),
    option(
        "python-function-memory",
        type=click.IntRange(16),
        default=DEFAULT_MEGABYTES,
        metavar="MB",
        help="What a process of functions in Python may take.",
    ),
    option(
        "python-function-answers",
        type=click.IntRange(0),
        default=DEFAULT_KEPT,
        metavar="MB",
        help="What each process keeps of the answers of IMMUTABLE functions in Python.",
    ),
    option(
        "connector-memory",
        type=click.IntRange(256),
        metavar="MB",
        help="What each process of sources, and each of sinks, may take;"
        " default: a quarter of the machine's memory, at least 1024.",
    ),
    option(
        "pass-environment",
        multiple=True,
        metavar="NAME",
        help="A variable that processes of sources, sinks and replicas get, beside those that they"
        " need; may be given several times.",
    ),
    option(
        "audit-interval",
        type=click.FloatRange(0),
        default=0.0,
        metavar="SECONDS",
        help="How often a random materialized view is verified; 0 for never.",
    ),
    option("tls-cert", type=_FILE, help="The server's certificate, in PEM, for TLS."),
    option("tls-key", type=_FILE, help="The certificate's private key."),
    option("tls-ca", type=_FILE, help="Certificates of who signs those of clients."),
    option("hba-file", type=_FILE, help="Who may connect; default: DATA_DIR/pg_hba.conf."),
    option("ident-file", type=_FILE, help="Whose certificates; default: DATA_DIR/pg_ident.conf."),
    option(
        "secrets-key-file",
        type=_FILE,
        help="The key of secrets, made if there is none; default: DATA_DIR/secrets.key.",
    ),
    option("max-connections", type=click.IntRange(1), default=1000, help="Concurrent sessions."),
    option(
        "superuser-reserved-connections",
        type=click.IntRange(0),
        default=3,
        help="Of these, kept free for superusers.",
    ),
    option(
        "query-memory",
        type=click.IntRange(16),
        default=QUERIES // MB,
        metavar="MB",
        help="What queries of all sessions may hold in the server, and likewise in each replica.",
    ),
    option(
        "max-message-size",
        type=click.IntRange(1, 1023),
        default=MOST >> 20,
        metavar="MB",
        help="Most megabytes of one message of a client.",
    ),
    option(
        "log-format",
        type=click.Choice(FORMATS),
        default="text",
        help="Of the log, on standard error: lines for people, or a JSON object in each.",
    ),
    option(
        "log-level",
        type=click.Choice(("debug", "info", "warning", "error"), case_sensitive=False),
        help="From which on is logged; default: info, of replicas warning.",
    ),
    option(
        "metrics-views",
        type=click.IntRange(0),
        default=1000,
        help="Of so many views /metrics has series of their own.",
    ),
    option(
        "trace-endpoint",
        metavar="URL",
        help="Where spans go, by OTLP over HTTP; default: OTEL_EXPORTER_OTLP_ENDPOINT, if given.",
    ),
    option(
        "shutdown-timeout",
        type=click.FloatRange(0),
        default=5.0,
        metavar="SECONDS",
        help="How long running statements may take after SIGTERM.",
    ),
    option(
        "checkpoint-interval",
        type=click.FloatRange(0),
        default=60.0,
        metavar="SECONDS",
        help="Between checkpoints of a replica's state; 0 for none.",
    ),
    option(
        "checkpoint-size",
        type=click.FloatRange(0),
        default=64.0,
        metavar="MB",
        help="Of a replica's state, from which on checkpoints are made.",
    ),
)


_FLAGS = (
    option(
        "python-functions",
        is_flag=True,
        help="Let superusers create functions in Python, which run as the server's user.",
    ),
    option(
        "allow-group-access",
        is_flag=True,
        help="Let the group of the server's user read the data directory: 0750, and 0640 of files.",
    ),
    option("http-tls", is_flag=True, help="Serve HTTP over TLS too."),
    option(
        "insecure-no-auth",
        is_flag=True,
        help="Trust every client, wherever it connects from. For trials only.",
    ),
    option(
        "take-over", is_flag=True, help="Take the data over from a live server, which then ends."
    ),
    click.option("--lifeline", is_flag=True, help="End when standard input does."),
)


def serve_options(command: FC) -> FC:
    """Add the options of `serve` to a command."""
    for each in reversed(_OPTIONS):
        command = each(command)
    return command


def flags(command: FC) -> FC:
    """Add the flags of `serve` and its file to a command, which other commands do not have."""
    for each in reversed((config_option, *_FLAGS)):
        command = each(command)
    return command
