"""Gives statements their times: sessions, the coordinator, transactions, peeks."""
