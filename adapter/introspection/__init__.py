"""System relations: their rows, and the tables that the system writes."""
