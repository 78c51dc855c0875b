"""How many tokens a call took, for limits of tokens a minute."""

import re
from typing import Final

import msgspec

_USAGE: Final = re.compile(rb'"usage"\s*:\s*(?=\{)')
#: A usage object is far shorter; it may be split over two chunks.
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
        self._tail = b""

    def passed(self, chunk: bytes) -> None:
        """A piece of the answer."""
        self._events += chunk.count(b"data: ")
        self._tail = (self._tail + chunk)[-_KEPT:]

    @property
    def total(self) -> int:
        """Tokens of prompt and answer, as far as they passed."""
        for found in reversed(list(_USAGE.finditer(self._tail))):
            end = _object_end(self._tail, found.end())
            try:
                total = _usage.decode(self._tail[found.end() : end]).total_tokens
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
            if total > 0:
                return total
        return self._prompt + self._events


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
