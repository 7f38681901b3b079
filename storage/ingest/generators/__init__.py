"""Load generators: rows that are made up, for demonstrations and tests.

Tick number n of a generator has the same rows in each run, so its position is n.
"""
