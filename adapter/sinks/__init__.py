"""Sinks: their creation, and the changes that they get."""
