"""CREATE METRIC: rows of maintained relations as metrics at /metrics. Begin with `published.py`."""
