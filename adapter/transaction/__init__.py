"""Transactions: locks, the oracle, and group commit."""
