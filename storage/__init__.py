"""Durable collections over time: the log, batches, traces, and who may read and write them."""
