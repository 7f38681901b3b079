"""Formats of the messages that sinks write, by column."""
