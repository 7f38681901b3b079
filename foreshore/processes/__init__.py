"""Processes that belong to another one: how it starts them, talks to them, and ends them."""
