"""What a program said last, as one sentence. A pure function."""

import re
from typing import Final

#: What vLLM and Python's logging put before each line: the process, then level, time and place.
_PREFIX: Final = re.compile(
    r"^(?:\([\w ]+ pid=\d+\) ?)?(?:(?:ERROR|CRITICAL|WARNING|INFO) [\d-]+ [\d:.,]+ \[[^\]]+\] ?)?"
)
_FRAME: Final = re.compile(r'^\s*(?:[|+] )?\s+File ".*", line \d+')


def last_words(output: str) -> str:
    """The end of a program's output: of a Python traceback the exception with what it explains, else all of it.

    Kubernetes keeps 2048 bytes of a log, so a traceback's beginning may be missing: its frames tell it.
    """
    lines = [_PREFIX.sub("", line) for line in output.splitlines()]
    frames = [index for index, line in enumerate(lines) if _FRAME.match(line)]
    if not frames:
        return output.strip()
    after = lines[frames[-1] + 1 :]
    # The source line of the frame and its marks are indented; the exception is not, the lines it goes on with are.
    start = next((index for index, line in enumerate(after) if line[:1].strip()), None)
    if start is None:
        return output.strip()
    rest = after[start + 1 :]
    end = next((index for index, line in enumerate(rest) if line[:1].strip()), len(rest))
    return "\n".join([after[start], *rest[:end]]).strip()
