import os
import subprocess
import sys

from autellix_engine.launcher import handover

INSTALL = """
import sys
from autellix_engine import process_plugin
process_plugin.install()
print([name for name in sys.modules if name.partition(".")[0] in ("vllm", "torch")])
"""


def test_without_our_launcher_a_vllm_of_the_same_environment_is_left_alone() -> None:
    environment = {name: value for name, value in os.environ.items() if name != handover.RECORDS_SOCKET}
    done = subprocess.run(
        [sys.executable, "-c", INSTALL], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
