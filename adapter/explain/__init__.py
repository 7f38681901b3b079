"""EXPLAIN: how a query is answered, what it costs, and how fresh its answer is."""
