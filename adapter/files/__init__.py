"""COPY to and from files of the server, and what they are compared with."""
