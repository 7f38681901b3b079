"""Evaluation of whole plans over few rows, with Arrow and NumPy and without an engine."""
