"""SUBSCRIBE: a query followed over time."""
