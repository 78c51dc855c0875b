"""HTTP header names between clients, controllers and engines (lower case, as ASGI has them)."""

from typing import Final

SESSION: Final = "x-autellix-session"
"""Names the program of a call."""
THREAD: Final = "x-autellix-thread"
"""Names the thread of a parallel program."""
PROGRAM: Final = "x-autellix-program"
"""In responses: the id the process table has for the program."""
ENGINE: Final = "x-autellix-engine"
"""In responses: the engine that served the call."""
ROUTE: Final = "x-autellix-route"
"""In responses: why that engine was chosen."""
REQUEST_ID: Final = "x-request-id"
