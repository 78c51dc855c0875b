"""What an engine's answer means: pass it on, or treat it as the engine's failure."""

from typing import Any, Final

import msgspec

from autellix_controller.errors import ErrorCode

#: Another engine may do better: it is starting, stopping (vLLM answers 500 then) or broken.
RETRY_STATUSES: Final = frozenset({500, 502, 503})
#: They speak of the engine key, which is ours: the client cannot mend it.
_OF_THE_KEY: Final = frozenset({401, 403, 407})


class EngineFailed(Exception):
    """The engine did not serve the call. The message is one line for the client and for logs."""

    def __init__(
        self,
        reason: str,
        *,
        retry: bool = False,
        code: ErrorCode = ErrorCode.ENGINE_ERROR,
        retry_after_seconds: int | None = None,
        blames_engine: bool = True,
    ) -> None:
        """``retry``: another engine may serve it. ``blames_engine``: it counts against the engine's health."""
        super().__init__(reason)
        self.retry = retry
        self.code = code
        self.retry_after_seconds = retry_after_seconds
        self.blames_engine = blames_engine


class _Choice(msgspec.Struct):
    finish_reason: Any = None


class _Answer(msgspec.Struct):
    choices: list[_Choice] | None = None
    status: Any = None
    """Of a response, on ``/v1/responses``."""


_answer: Final = msgspec.json.Decoder(_Answer)


class _Error(msgspec.Struct):
    message: str


class _WithError(msgspec.Struct):
    error: _Error


_with_error: Final = msgspec.json.Decoder(_WithError)


class _EventOfResponse(msgspec.Struct):
    response: _Answer | None = None


_event_of_response: Final = msgspec.json.Decoder(_EventOfResponse)
#: How vLLM says on ``/v1/responses``, for models whose answers it takes apart itself, that a call was aborted.
_CANCELLED: Final = "cancelled"
_UNREADABLE: Final = (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError)


def media_type(headers: list[tuple[bytes, bytes]]) -> bytes:
    """The media type of an answer, without parameters; empty if it names none."""
    values = [value for name, value in headers if name == b"content-type"]
    return values[0].partition(b";")[0].strip().lower() if values else b""


def check_complete(body: bytes) -> None:
    """Looks at a whole answer. Raises EngineFailed if it is not JSON, or says that the engine gave up."""
    try:
        answer = _answer.decode(body)
    except _UNREADABLE:
        raise EngineFailed("The engine's answer is not the JSON that was expected.", retry=True) from None
    if answer.status == _CANCELLED or any(choice.finish_reason == "abort" for choice in answer.choices or ()):
        raise EngineFailed("The engine aborted the call.", retry=True)


def says_cancelled(event: bytes) -> bool:
    """Whether the event that ends a streamed response says that the engine gave up."""
    try:
        response = _event_of_response.decode(event).response
    except _UNREADABLE:
        return False
    return response is not None and response.status == _CANCELLED


def error_status(event: bytes) -> int:
    """The status that an error within a stream stands for; 0 if it does not say."""
    try:
        found = msgspec.json.decode(event)
    except _UNREADABLE:
        return 0
    error = found.get("error", found) if isinstance(found, dict) else None
    if not isinstance(error, dict):
        return 0
    code = error.get("code")
    if isinstance(code, int) and 400 <= code <= 599:
        return code
    return 500 if "server_error" in (code, error.get("type")) else 0


def is_clients(status: int) -> bool:
    """Whether an engine's status speaks of the client's request."""
    return 400 <= status < 500 and status not in _OF_THE_KEY


def failure_of(status: int) -> EngineFailed:
    """What a status means that is neither success nor the client's."""
    return EngineFailed(
        f"The engine answered with status {status}." if status else "The engine answered with an error.",
        retry=status in RETRY_STATUSES,
        code=ErrorCode.NO_ENGINE if status == 503 else ErrorCode.ENGINE_ERROR,
        retry_after_seconds=1 if status == 503 else None,
    )


def failure_within(status: int) -> EngineFailed:
    """What an error means that came in the middle of a stream; the client has got it."""
    if is_clients(status):
        reason = f"The engine refused the call within its stream ({status})."
        return EngineFailed(reason, code=ErrorCode.INVALID_REQUEST, blames_engine=False)
    return failure_of(status)


def client_error(status: int, body: bytes) -> bytes:
    """The body of an engine's 4xx answer in OpenAI's shape: unchanged if it has it, else wrapped."""
    try:
        _with_error.decode(body)
    except _UNREADABLE:
        text = body[:1000].decode(errors="replace")
        message = f"The engine refused the call ({status}): {text}"
        kind = ErrorCode.INVALID_REQUEST
        return msgspec.json.encode({"error": {"message": message, "type": kind.kind, "param": None, "code": kind.code}})
    return body
