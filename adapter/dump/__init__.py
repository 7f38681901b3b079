"""The statements of a dump: the definitions of objects with their options."""
