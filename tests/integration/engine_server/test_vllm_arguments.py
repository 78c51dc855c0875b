"""The launcher's knowledge of vLLM's arguments, against vLLM's own parser."""

import json
import subprocess
import sys

import pytest

from autellix_engine.launcher.arguments import REFUSED, InvalidArguments, parse_serve

pytestmark = pytest.mark.heavy

PRINT_OPTIONS = """
import json
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser

actions = make_arg_parser(FlexibleArgumentParser())._actions
print(json.dumps([name for action in actions for name in action.option_strings]))
"""


def test_exactly_the_arguments_of_the_system_are_refused() -> None:
    printed = subprocess.run([sys.executable, "-c", PRINT_OPTIONS], stdout=subprocess.PIPE, check=True, timeout=200)
    options = set(json.loads(printed.stdout.splitlines()[-1])) - {"-h", "--help", "--model"}
    meant = set()
    for pattern in REFUSED:
        fitting = {
            name for name in options if name == pattern or (pattern[-1] == "*" and name.startswith(pattern[:-1]))
        }
        assert fitting or pattern == "--omni", f"vLLM has no {pattern}"  # --omni is read before its parser
        meant |= fitting
    refused = set()
    for name in options:
        try:
            parse_serve(["model", name])
        except InvalidArguments:
            refused.add(name)
    assert refused == meant
