"""How each kind of planned statement is carried out; one kind, one file."""
