"""Where the engines are: the seam, and the list that settings give."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol
from urllib.parse import urlsplit

from autellix_controller.engines.engine import Endpoint

Publish = Callable[[Sequence[Endpoint]], None]
"""Takes the complete list of engines each time it changes."""


class Discovery(Protocol):
    """A source of endpoints."""

    async def run(self, publish: Publish) -> None:
        """Publishes the complete list once it is known and after each change, until cancelled.

        Handles loss of its own source: meanwhile the last list stands.
        """


class StaticDiscovery:
    """Engines that are listed in the settings; each is called after its host and port."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._endpoints = [Endpoint(urlsplit(url).netloc, url) for url in urls]

    async def run(self, publish: Publish) -> None:
        """See ``Discovery``: publishes once."""
        publish(self._endpoints)
        await asyncio.Event().wait()
