"""What an engine's answer means: pass it on, or treat it as the engine's failure."""

from typing import Any, Final

import msgspec

from autellix_controller.errors import ErrorCode

#: Another engine may do better: it is starting, stopping (vLLM answers 500 then) or broken.
RETRY_STATUSES: Final = frozenset({500, 502, 503})


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


_answer: Final = msgspec.json.Decoder(_Answer)


class _Error(msgspec.Struct):
    message: str


class _WithError(msgspec.Struct):
    error: _Error


_with_error: Final = msgspec.json.Decoder(_WithError)


def media_type(headers: list[tuple[bytes, bytes]]) -> bytes:
    """The media type of an answer, without parameters; empty if it names none."""
    values = [value for name, value in headers if name == b"content-type"]
    return values[0].partition(b";")[0].strip().lower() if values else b""


def check_complete(body: bytes) -> None:
    """Looks at a whole answer. Raises EngineFailed if it is not JSON, or says that the engine gave up."""
    try:
        answer = _answer.decode(body)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError):
        raise EngineFailed("The engine's answer is not the JSON that was expected.", retry=True) from None
    if any(choice.finish_reason == "abort" for choice in answer.choices or ()):
        raise EngineFailed("The engine aborted the call.", retry=True)


def client_error(status: int, body: bytes) -> bytes:
    """The body of an engine's 4xx answer in OpenAI's shape: unchanged if it has it, else wrapped."""
    try:
        _with_error.decode(body)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError):
        text = body[:1000].decode(errors="replace")
        message = f"The engine refused the call ({status}): {text}"
        kind = ErrorCode.INVALID_REQUEST
        return msgspec.json.encode({"error": {"message": message, "type": kind.kind, "param": None, "code": kind.code}})
    return body
