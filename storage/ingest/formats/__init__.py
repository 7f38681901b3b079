"""Formats: the bytes of messages to columns, many messages at a time."""
