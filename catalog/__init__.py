"""Names to GlobalIds and definitions, durably and in order."""
