"""SELECT: a plan, a timestamp, and the rows."""
