"""Statements that change or lock rows."""
