"""The catalog: names to `GlobalId`s and definitions, durably and in order."""
