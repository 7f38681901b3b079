"""The coordinator, and how it changes the catalog and all that is maintained with it."""
