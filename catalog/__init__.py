"""The catalog: maps names to `GlobalId`s and definitions, durably."""
