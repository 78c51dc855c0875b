"""How long a prompt is, from its bytes, where those decide.

Every token of a byte-level vocabulary stands for at least one byte, and the JSON around a text is longer than what a
chat template makes of it: a prompt has at most as many tokens as its JSON has bytes. Text has four to five bytes a
token, code and escaped characters up to ten. Between the two bounds only the model's tokenizer can tell, which takes
tens of milliseconds for 50 KB and so is asked for nothing else.
"""

import re
from typing import Final

BYTES_PER_TOKEN: Final = 4
#: A prompt with more bytes than this for each token of the threshold is long.
MOST_BYTES_PER_TOKEN: Final = 12
_TOKEN_IDS: Final = re.compile(rb"\s*\[[\s\d,]*\]\s*")


def exact_tokens(prompt: bytes) -> int | None:
    """Tokens of a prompt that is given as a list of token ids (raw JSON); None for a text."""
    return prompt.count(b",") + 1 if _TOKEN_IDS.fullmatch(prompt) else None


def estimated_tokens(prompt: bytes) -> int:
    """Tokens of a prompt, given as the raw JSON of ``messages``, ``prompt`` or ``input``: four bytes are one token.

    Errs towards long, since text has four to five bytes a token. Token ids are counted exactly.
    """
    exact = exact_tokens(prompt)
    return len(prompt) // BYTES_PER_TOKEN if exact is None else exact


def is_short(prompt: bytes, threshold_tokens: int) -> bool | None:
    """Whether the call counts as short under Algorithm 2; None if its bytes do not tell.

    A threshold of 0 makes no call short.
    """
    if threshold_tokens == 0:
        return False
    if (exact := exact_tokens(prompt)) is not None:
        return exact <= threshold_tokens
    if len(prompt) <= threshold_tokens:
        return True
    return False if len(prompt) > MOST_BYTES_PER_TOKEN * threshold_tokens else None
