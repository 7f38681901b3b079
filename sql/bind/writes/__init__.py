"""Bind statements that change or lock rows."""
