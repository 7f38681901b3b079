"""Sessions: what one client has prepared, set and opened, and the statements about that."""
