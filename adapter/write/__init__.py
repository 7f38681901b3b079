"""INSERT, UPDATE, DELETE, MERGE, COPY: rows into tables."""
