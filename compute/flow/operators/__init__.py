"""Operators: each turns its inputs' updates in a window into its output's, exact at each time."""
