"""Relational expressions to better ones that mean the same; one rule, one file."""
