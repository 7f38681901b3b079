"""Evaluation in processes of its own, which can be ended whatever they are doing."""
