"""The paths that are passed on to engines."""

from typing import Final

import msgspec


class Route(msgspec.Struct, frozen=True):
    """A path that is passed on to engines."""

    path: str
    summary: str
    generates: bool = True
    """Its calls are scheduled as calls of a program: they carry context, follow the pin and are charged."""
    streams_end_with_done: bool = True
    needs_model: bool = True


ROUTES: Final = {
    route.path: route
    for route in (
        Route("/v1/chat/completions", "Chat completions"),
        Route("/v1/completions", "Completions"),
        Route("/v1/responses", "Responses", streams_end_with_done=False),
        Route("/v1/embeddings", "Embeddings", generates=False),
        Route("/tokenize", "Tokens of a prompt", generates=False, needs_model=False),
    )
}
