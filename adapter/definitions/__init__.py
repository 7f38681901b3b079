"""Items read from the catalog: a reader of names, and plans of the items' statements."""
