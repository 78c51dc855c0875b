"""What the gateway reads from a request's body, and what it changes there.

Only the top level of the JSON is taken apart; every value keeps the bytes that the client sent.
"""

import codecs
import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Raw

from autellix_controller.errors import ApiError, ErrorCode, invalid
from autellix_wire import context
from autellix_wire.context import ProgramContext

#: Fields that a client must not set. Dropped: placement and priority belong to the controller and the scheduler, the
#: id of a call is ours (vLLM files responses under it, of all callers alike), and a client library that sends them by
#: habit should go on working.
DROPPED_FIELDS: Final = frozenset({"priority", "session_id", "request_id"})
#: Refused instead, unless null: they name memory on other machines, and ignoring them would change the answer.
REFUSED_FIELDS: Final = frozenset({"kv_transfer_params", "ec_transfer_params"})
#: The same inside ``vllm_xargs``, where an engine would read them as well.
_DROPPED_XARGS: Final = DROPPED_FIELDS | REFUSED_FIELDS
#: vLLM shares cached prefixes only between requests of equal salt.
_CACHE_SALT: Final = "cache_salt"
_PROMPT_FIELDS: Final = ("messages", "prompt", "input", "tools", "instructions")

_TOKENIZE_CHAT: Final = ("model", "messages", "tools", "chat_template", "chat_template_kwargs")
_TOKENIZE_PROMPT: Final = ("model", "prompt", "add_special_tokens")

_object: Final[msgspec.json.Decoder[dict[str, Raw]]] = msgspec.json.Decoder(dict[str, Raw])
_model: Final[msgspec.json.Decoder[str | None]] = msgspec.json.Decoder(str | None)
_encoder: Final = msgspec.json.Encoder()


class Body:
    """A parsed request body."""

    def __init__(self, fields: dict[str, Raw], model: str | None) -> None:
        self._fields = fields
        self.model = model

    @property
    def prompt(self) -> bytes:
        """The raw JSON of what the model will read, for an estimate of its length."""
        parts = [bytes(self._fields[name]) for name in _PROMPT_FIELDS if name in self._fields]
        return parts[0] if len(parts) == 1 else b" ".join(parts)

    def tokenize_request(self) -> bytes | None:
        """The prompt as an engine's ``/tokenize`` takes it; None if it is of another form."""
        wanted = _TOKENIZE_CHAT if "messages" in self._fields else _TOKENIZE_PROMPT
        fields = {name: self._fields[name] for name in wanted if name in self._fields}
        return _encoder.encode(fields) if fields.keys() & {"messages", "prompt"} else None

    def with_context(self, program: ProgramContext | None, *, isolated_for: str | None = None) -> bytes:
        """The body for an engine: without what clients must not set, with the program's context if there is one.

        ``isolated_for``: whose prefix cache the call may use; None leaves the client's ``cache_salt`` alone.
        """
        fields = {name: value for name, value in self._fields.items() if name not in DROPPED_FIELDS}
        xargs = _xargs(self._fields.get(context.XARGS_FIELD))
        kept: dict[str, object] = {
            name: value
            for name, value in xargs.items()
            if not name.startswith(context.PREFIX) and name not in _DROPPED_XARGS
        }
        if program is not None:
            kept.update(program.to_xargs())
        if kept:
            fields[context.XARGS_FIELD] = Raw(_encoder.encode(kept))
        else:
            fields.pop(context.XARGS_FIELD, None)
        if isolated_for is not None:
            salt = _cache_salt(isolated_for, bytes(self._fields.get(_CACHE_SALT, b"")))
            fields[_CACHE_SALT] = Raw(_encoder.encode(salt))
        return _encoder.encode(fields)


def _cache_salt(owner: str, clients: bytes) -> str:
    """The salt of one owner's prefix cache, the same on every replica; the client's own divides it further."""
    return hashlib.sha256(b"%d:%s%s" % (len(owner), owner.encode(), clients)).hexdigest()


def _xargs(raw: Raw | None) -> Mapping[str, Raw]:
    if raw is None or bytes(raw) == b"null":
        return {}
    try:
        return _object.decode(raw)
    except msgspec.ValidationError:
        raise invalid("vllm_xargs must be an object.", param=context.XARGS_FIELD) from None


def parse(body: bytes) -> Body:
    """Takes a body apart. Raises ApiError 400."""
    try:
        codecs.utf_8_decode(body, "strict", True)
        fields = _object.decode(body)
    except UnicodeDecodeError as error:
        raise invalid(f"The body is not valid UTF-8 (byte {error.start}).") from None
    except RecursionError:
        raise invalid("The body is nested too deeply.") from None
    except msgspec.ValidationError:
        raise invalid("The body must be a JSON object.") from None
    except msgspec.DecodeError as error:
        raise invalid(f"The body is not valid JSON: {error}.") from None
    for name in REFUSED_FIELDS & fields.keys():
        if bytes(fields[name]) != b"null":
            raise invalid(f"{name} may not be set by clients.", param=name)
    _xargs(fields.get(context.XARGS_FIELD))
    try:
        model = _model.decode(fields["model"]) if "model" in fields else None
    except msgspec.DecodeError:
        raise invalid("model must be a string.", param="model") from None
    return Body(fields, model)


def check_headers(content_type: bytes | None, content_encoding: bytes | None) -> None:
    """Refuses bodies that are not plain JSON. Raises ApiError 415."""
    if content_encoding is not None and content_encoding.strip().lower() not in (b"", b"identity"):
        raise ApiError(ErrorCode.UNSUPPORTED_MEDIA_TYPE, "Compressed bodies are not accepted.")
    if content_type is None:
        return
    kind, _, parameters = content_type.lower().partition(b";")
    charset = parameters.partition(b"charset=")[2].strip(b' "')
    if kind.strip() != b"application/json" or charset not in (b"", b"utf-8", b"utf8"):
        raise ApiError(ErrorCode.UNSUPPORTED_MEDIA_TYPE, "The body must be application/json in UTF-8.")
