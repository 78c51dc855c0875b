"""Routing: which engine gets a call (Algorithm 2), decided by pure functions of a snapshot."""
