"""Typed scalar and relational expressions, and the functions they call."""
