"""Subqueries and outer joins as plain relational algebra."""
