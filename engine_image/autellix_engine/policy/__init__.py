"""The decision core: which calls run and which give way. Pure Python: no I/O, no clock, no randomness of its own."""
