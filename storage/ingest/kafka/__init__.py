"""Kafka as an external system: the messages of a topic as rows."""
