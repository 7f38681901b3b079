"""Statements about the session: transactions, settings, portals, prepared statements."""
