"""How many tokens a prompt has, by the model's own tokenizer: engines are asked."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from autellix_controller.engines.client import EngineClient, TokenizeUnsupported
from autellix_controller.engines.engine import Engine
from autellix_controller.engines.fleet import Fleet

#: A call waits for its count at most so long; then the estimate has to do.
_SECONDS: Final = 0.5


class TokenCounter:
    """Counts by the least used engine that serves the model and has a ``/tokenize`` (vLLM has)."""

    def __init__(self, fleet: Fleet, client: Callable[[str], EngineClient], *, seconds: float = _SECONDS) -> None:
        """``client`` makes a client for an engine's URL."""
        self._fleet, self._client, self._seconds = fleet, client, seconds

    async def count(self, model: str | None, request: bytes) -> int | None:
        """Tokens of a request to ``/tokenize``, chat template included; None if no engine told in time."""
        engine = self._engine(model)
        if engine is None:
            return None
        try:
            async with asyncio.timeout(self._seconds):
                return await self._client(engine.endpoint.url).count_tokens(request)
        except TokenizeUnsupported:
            engine.tokenizes = False
        except TimeoutError:
            pass  # it is busy
        return None

    def _engine(self, model: str | None) -> Engine | None:
        now = time.monotonic()
        able = [engine for engine in self._fleet if engine.in_rotation and engine.tokenizes and engine.serves(model)]
        return min(able, key=lambda engine: engine.used(now), default=None)
