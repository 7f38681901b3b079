"""Statements that make, alter, drop and show objects."""
