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
SERVICE: Final = "x-autellix-service-ms"
"""In responses: the service that the program had had, as the engine was told."""
LEVEL: Final = "x-autellix-level"
"""In responses: the level of the engine's queue that this service means."""
ACCOUNTING: Final = "x-autellix-accounting"
"""In responses: whether the call is charged by the engine's records or by an estimate."""
REQUEST_ID: Final = "x-request-id"

OURS: Final = (SESSION, THREAD, PROGRAM, ENGINE, ROUTE, SERVICE, LEVEL, ACCOUNTING)
"""What only clients and controllers say to each other."""
