"""The grammar of PostgreSQL's queries and expressions, as a subclass of sqlglot's parser."""
