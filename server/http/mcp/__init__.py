"""A server of the Model Context Protocol, by which programs with language models use the database.

    /api/mcp/agent       the data that a role may read and that is quick to read
    /api/mcp/developer   also everything that there is, plans, and the states of what is maintained

Read `endpoint.py` first; `protocol.py` has the messages, `tools.py` what can be called.
"""
