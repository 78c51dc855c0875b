"""The one exception that reaches people."""


class OnenodeError(Exception):
    """Something that the person at the keyboard can act on: the message says what is wrong and what to do."""
