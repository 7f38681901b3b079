"""Statements about roles, their memberships and their rights; the rules are in `catalog/`."""
