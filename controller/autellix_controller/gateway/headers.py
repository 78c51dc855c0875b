"""Which headers pass between client and engine."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from autellix_wire import headers as names

#: What no header may hold; a value with it is left out, since it could end the header early.
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")

RawHeaders = Iterable[tuple[bytes, bytes]]

#: They belong to one connection, not to the message (RFC 9110, section 7.6.1).
HOP_BY_HOP: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
#: Said anew for the next hop, or answered by us.
_REPLACED: Final = frozenset(
    {b"host", b"content-length", b"expect", b"accept-encoding", b"authorization", names.REQUEST_ID.encode()}
)
#: What clients must not say to an engine: placement, priority and session are the controller's; our own headers end
#: here.
_OURS: Final = frozenset(
    {
        b"x-session-id",
        b"x-vllm-priority",
        b"x-data-parallel-rank",
        *(name.encode() for name in names.OURS),
    }
)
_REQUEST_ID: Final = names.REQUEST_ID.encode()
_IDENTITY: Final = (b"accept-encoding", b"identity")
_NOT_TO_ENGINES: Final = HOP_BY_HOP | _REPLACED | _OURS
_NOT_TO_CLIENTS: Final = HOP_BY_HOP | _OURS | {b"content-length", b"date", b"server", names.REQUEST_ID.encode()}


def _with_named_by_connection(dropped: frozenset[bytes], headers: RawHeaders) -> frozenset[bytes]:
    values = [value for name, value in headers if name == b"connection"]
    if not values:
        return dropped
    return dropped | {token.strip().lower() for value in values for token in value.split(b",")}


def to_engine(
    headers: list[tuple[bytes, bytes]], *, request_id: str, trace: Sequence[tuple[str, str]] = ()
) -> list[tuple[bytes, bytes]]:
    """Headers of the call to an engine, names in lower case as ASGI has them; the engines' key is not among them.

    ``trace``: trace context of our own, in place of the client's.
    """
    dropped = _with_named_by_connection(_NOT_TO_ENGINES, headers)
    if trace:
        dropped = dropped | {name.encode() for name, _ in trace}
    passed = [header for header in headers if header[0] not in dropped]
    passed += [(name.encode(), value.encode()) for name, value in trace]
    passed.append((_REQUEST_ID, request_id.encode()))
    # Answers are looked into (broken off? aborted?), so they must not come compressed.
    passed.append(_IDENTITY)
    return passed


def to_client(headers: RawHeaders) -> list[tuple[bytes, bytes]]:
    """Headers of an engine's answer that a client gets."""
    lowered = [(name.lower(), value) for name, value in headers]
    dropped = _with_named_by_connection(_NOT_TO_CLIENTS, lowered)
    return [header for header in lowered if header[0] not in dropped and not _CONTROL.search(header[1])]
