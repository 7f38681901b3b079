"""Derived collections: dataflows, the replicas that run them, and peeks."""
