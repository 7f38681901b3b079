"""Admission: which clients may open a session.

The rules of a file like PostgreSQL's pg_hba.conf say how a client has to prove who it is. Read
`authenticator.py` first.
"""
