"""Every error that a client of the controller can see: one table of codes, one shape (OpenAI's)."""

from enum import Enum
from typing import Final

import msgspec

#: Status that logs and metrics use when the client went away before an answer; it never reaches a client.
CLIENT_CLOSED: Final = 499
_SHOWN: Final = 100


class ErrorCode(Enum):
    """The closed list of error codes: code, HTTP status, OpenAI error type.

    ``docs/http-api.md`` describes each; a test holds the two together.
    """

    INVALID_REQUEST = ("invalid_request", 400, "invalid_request_error")
    INVALID_API_KEY = ("invalid_api_key", 401, "authentication_error")
    MODEL_NOT_FOUND = ("model_not_found", 404, "invalid_request_error")
    SESSION_NOT_FOUND = ("session_not_found", 404, "invalid_request_error")
    ROUTE_NOT_FOUND = ("route_not_found", 404, "invalid_request_error")
    METHOD_NOT_ALLOWED = ("method_not_allowed", 405, "invalid_request_error")
    HEADERS_TIMEOUT = ("headers_timeout", 408, "invalid_request_error")
    BODY_TIMEOUT = ("body_timeout", 408, "invalid_request_error")
    SESSION_ENDED = ("session_ended", 409, "invalid_request_error")
    BODY_TOO_LARGE = ("body_too_large", 413, "invalid_request_error")
    UNSUPPORTED_MEDIA_TYPE = ("unsupported_media_type", 415, "invalid_request_error")
    CONTENDED = ("contended", 429, "rate_limit_error")
    RATE_LIMIT_EXCEEDED = ("rate_limit_exceeded", 429, "rate_limit_error")
    HEADERS_TOO_LARGE = ("headers_too_large", 431, "invalid_request_error")
    INTERNAL = ("internal_error", 500, "server_error")
    ENGINE_ERROR = ("engine_error", 502, "server_error")
    NO_ENGINE = ("no_engine", 503, "server_error")
    TABLE_UNAVAILABLE = ("table_unavailable", 503, "server_error")
    SHUTTING_DOWN = ("shutting_down", 503, "server_error")
    DEADLINE_EXCEEDED = ("deadline_exceeded", 504, "server_error")

    def __init__(self, code: str, status: int, kind: str) -> None:
        self.code = code
        self.status = status
        self.kind = kind


#: Seconds after which a retry makes sense, where the error itself knows no better.
_RETRY_AFTER: Final = {
    ErrorCode.HEADERS_TIMEOUT: 1,
    ErrorCode.BODY_TIMEOUT: 1,
    ErrorCode.ENGINE_ERROR: 1,
    ErrorCode.DEADLINE_EXCEEDED: 1,
}


class ApiError(Exception):
    """An error answer. The message is for people and holds no secret."""

    def __init__(
        self, code: ErrorCode, message: str, *, param: str | None = None, retry_after_seconds: int | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param
        self.retry_after_seconds = _RETRY_AFTER.get(code) if retry_after_seconds is None else retry_after_seconds

    @property
    def status(self) -> int:
        """HTTP status of the answer."""
        return self.code.status

    def body(self) -> bytes:
        """The JSON body that OpenAI clients expect."""
        return msgspec.json.encode(
            {"error": {"message": self.message, "type": self.code.kind, "param": self.param, "code": self.code.code}}
        )

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Headers that belong to the error, apart from those of its body."""
        if self.retry_after_seconds is None:
            return []
        return [(b"retry-after", str(self.retry_after_seconds).encode())]


def shown(text: str) -> str:
    """What a client sent, short enough to be repeated in an error and in logs."""
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def no_model(model: str) -> ApiError:
    """Engines are known, and none of them serves the model."""
    return ApiError(ErrorCode.MODEL_NOT_FOUND, f"There is no model {shown(model)!r}.", param="model")


def invalid(message: str, *, param: str | None = None) -> ApiError:
    """A request that no retry will make right."""
    return ApiError(ErrorCode.INVALID_REQUEST, message, param=param)
