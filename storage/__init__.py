"""Durable collections over time: the log, batches, traces and capabilities."""
