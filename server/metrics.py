"""The server's metrics, named `<layer>_<thing>_<unit>`."""

from prometheus_client import Counter, Gauge

SESSIONS = Gauge("server_sessions", "Sessions that are open.")
STATEMENTS = Counter("server_statements_total", "Statements completed for clients.")
ERRORS = Counter("server_errors_total", "Errors sent to clients.", ["sqlstate"])
