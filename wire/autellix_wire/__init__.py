"""The contracts between controller and engine: program context in, call records out."""
