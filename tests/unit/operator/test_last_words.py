"""What is kept of a program's output."""

import pytest

from autellix_operator.last_words import last_words

TRACEBACK = """\
Traceback (most recent call last):
  File "/usr/lib/python3/site.py", line 10, in main
    run(
    ~~~^
  File "/usr/lib/python3/run.py", line 3, in run
    raise ValueError(name)
ValueError: no such model: x"""


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("model x: not found\n", "model x: not found"),
        ("first\nsecond", "first\nsecond"),
        ("", ""),
        (TRACEBACK, "ValueError: no such model: x"),
        (TRACEBACK + "\nbye", "ValueError: no such model: x"),
        # The beginning was cut off.
        (TRACEBACK[60:], "ValueError: no such model: x"),
        # The last of several in a row is what the program ended with.
        (
            f"{TRACEBACK}\n\nDuring handling, another one:\n\n{TRACEBACK.replace('x', 'y')}",
            "ValueError: no such model: y",
        ),
        # An exception of several lines.
        (
            '  File "a.py", line 1, in f\n    g()\nValidationError: 1 error for Config\n  Value error, too long\n',
            "ValidationError: 1 error for Config\n  Value error, too long",
        ),
        # vLLM marks each line with its process.
        (
            "\n".join(f"(EngineCore_DP0 pid=12) {line}" for line in TRACEBACK.splitlines()),
            "ValueError: no such model: x",
        ),
        (
            "\n".join(f"(EngineCore pid=7) ERROR 11-30 12:00:01 [core.py:9] {line}" for line in TRACEBACK.splitlines()),
            "ValueError: no such model: x",
        ),
        # vLLM's own end, of a model that is not there: frames of compiled code, an exception with its module.
        (
            'st/serve.py", line 156, in cmd\n    uvloop.run(run_server(args))\n'
            '  File "uvloop/loop.pyx", line 1515, in uvloop.loop.Loop.run_until_complete\n'
            '  File "hub/utils.py", line 133, in validate_repo_id\n    raise HFValidationError(\n'
            "hub.errors.HFValidationError: Repo id must be in the form 'name': '/models/none'.\n",
            "hub.errors.HFValidationError: Repo id must be in the form 'name': '/models/none'.",
        ),
        # What helpers of Python say after it.
        (
            TRACEBACK + "\n/usr/lib/tracker.py:254: UserWarning: 2 leaked objects\n  warnings.warn('x'\n",
            "ValueError: no such model: x",
        ),
        # Cut before the exception: better all than nothing.
        ('  File "a.py", line 1, in f\n    g()', 'File "a.py", line 1, in f\n    g()'),
    ],
)
def test_of_a_traceback_the_exception_is_kept(output: str, words: str) -> None:
    assert last_words(output) == words
