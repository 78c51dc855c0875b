"""Shows engines their key."""

from typing import Final

from autellix_controller.engines.keys import EngineKeys
from autellix_controller.gateway.upstream import Headers, Upstream, UpstreamAnswer

_REFUSED: Final = 401


class KeyedUpstream:
    """An ``Upstream`` that adds the engines' key to each call, and tries the next one where it is refused."""

    def __init__(self, upstream: Upstream, keys: EngineKeys) -> None:
        self._upstream, self._keys = upstream, keys

    async def post(self, url: str, target: str, body: bytes, headers: Headers) -> UpstreamAnswer:
        """See ``Upstream``. What the last key leads to is the answer."""
        *others, last = self._keys.headers
        for key in others:
            answer = await self._upstream.post(url, target, body, [*headers, *key])
            if answer.status != _REFUSED:
                return answer
            answer.close()
        return await self._upstream.post(url, target, body, [*headers, *last])
