"""Bound plans: their arguments, time and cluster, and their evaluation in this process."""
