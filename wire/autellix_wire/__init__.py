"""The contracts between controller and engine: program context in, call records out, the file of the keys."""
