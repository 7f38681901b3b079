"""`foreshore doctor`: looks at this machine, a data directory, and the server on it if one runs."""
