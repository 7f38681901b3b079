"""Tables of a lake, and directories of files, as targets of sinks."""
