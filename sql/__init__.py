"""Translate SQL text to a typed, optimised plan; pure, without input or output."""
