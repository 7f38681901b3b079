"""Turn subqueries and outer joins into plain relational algebra."""
