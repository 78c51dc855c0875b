"""Sessions: how a caller names its program, and the programs' life in the process table."""
