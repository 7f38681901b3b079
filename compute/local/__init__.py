"""Evaluation in the environment's process: linear plans by kernels, recursions step by step."""
