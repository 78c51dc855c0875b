"""Engines: finding them, knowing how they are, and reading their records."""
