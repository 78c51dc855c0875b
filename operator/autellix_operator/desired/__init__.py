"""Desired objects as pure functions of a cluster's identity, its spec and the operator's settings: no I/O, no clock."""
