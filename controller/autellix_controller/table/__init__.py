"""The process table: what every replica knows about live programs."""
