"""Statements that wait for other systems: what their sources have, and what sinks have written."""
