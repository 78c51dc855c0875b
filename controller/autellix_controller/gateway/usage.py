"""How many tokens a call took, for limits of tokens a minute."""

import re
from typing import Final

import msgspec

_MARKER: Final = b'"usage"'
_USAGE: Final = re.compile(rb"\s*:\s*(?=\{)")
#: A usage object is far shorter; it may be split over many chunks.
_KEPT: Final = 4096


class _Usage(msgspec.Struct):
    total_tokens: int = 0


_usage: Final = msgspec.json.Decoder(_Usage)


class TokenCount:
    """Counts the tokens of one call from what passes by: by the answer's ``usage`` if there is one, otherwise by the
    estimate of the prompt and one token for each event of the stream."""

    def __init__(self, prompt_tokens: int) -> None:
        """``prompt_tokens``: an estimate."""
        self._prompt = prompt_tokens
        self._events = 0
        self._told = 0
        self._edge = b""
        self._found: bytes | None = None
        """What follows the last place that says usage, as far as it has come."""

    def passed(self, chunk: bytes) -> None:
        """A piece of the answer."""
        self._events += chunk.count(b"data: ")
        window = self._edge + chunk
        before, *found = window.split(_MARKER)
        if self._found is not None and len(self._found) < _KEPT:
            self._found += before[len(self._edge) :]
        self._edge = window[1 - len(_MARKER) :]
        for text in found:
            self._take()
            self._found = text[:_KEPT]

    def _take(self) -> None:
        """Reads what was found. The most that was told counts: engines repeat usage as it grows, and what a client's
        own text says elsewhere in an answer must not lower it."""
        text, self._found = self._found, None
        if text is None or (usage := _USAGE.match(text)) is None:
            return
        try:
            told = _usage.decode(text[usage.end() : _object_end(text, usage.end())]).total_tokens
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        self._told = max(self._told, told)

    @property
    def total(self) -> int:
        """Tokens of prompt and answer, as far as they passed."""
        self._take()
        return self._told or self._prompt + self._events


def _object_end(text: bytes, start: int) -> int | None:
    """Where the JSON object that begins at ``start`` ends. Usage holds no strings with braces."""
    depth = 0
    for position in range(start, len(text)):
        if text[position] == ord("{"):
            depth += 1
        elif text[position] == ord("}"):
            depth -= 1
            if depth == 0:
                return position + 1
    return None
