"""Functions of users in Python: what is kept of one, and the processes that run it.

Their code never runs in the process of a server or replica. A host process gets whole batches of
arguments as Arrow, and answers with values and errors of each row.
"""
