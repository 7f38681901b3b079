"""What the server counts for Prometheus; adapter/metrics/scrape.py has all else."""

from prometheus_client import Counter

ERRORS = Counter("foreshore_errors_total", "Errors sent to clients.", ["sqlstate"])
HTTP_REQUESTS = Counter(
    "foreshore_http_requests_total", "Requests of programs over HTTP.", ["path", "status"]
)
