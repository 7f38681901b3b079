"""Evaluation in separate processes, which can be killed at any point."""
