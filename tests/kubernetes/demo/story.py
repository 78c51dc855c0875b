"""The demo's acts, in order: Kubernetes, images, chart, two clusters, traffic, the table."""

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from openai import AsyncOpenAI

from demo import scenario
from onenode import images
from onenode.lab import Lab
from onenode.progress import Heartbeat
from support.installation import Installation, local_images
from support.prometheus import scrape, total
from support.resources import SERVED_MODEL, autellix_cluster
from support.traffic import Program, ProgramRun, run_program, run_programs

NAMESPACE = "demo"
#: The same cluster twice; only the order of calls differs.
CLUSTERS = {"stock": "Fcfs", "agents": "Plas"}
_TITLES = {"stock": "stock order", "agents": "PLAS"}
_READY_SECONDS = 600


def play(lab: Lab, tell: Callable[[str], None]) -> None:
    """Plays the demo from nothing to the comparison, and leaves the Kubernetes running."""
    tell("[1/5] images and Kubernetes")
    lab.up(images.archives())
    lab.enter_network()

    tell("[2/5] helm install")
    installation = Installation(lab, local_images())
    installation.install()

    tell("[3/5] kubectl apply: two AutellixClusters, one in stock order (FCFS), one with PLAS")
    installation.namespace(NAMESPACE)
    for name, policy in CLUSTERS.items():
        installation.apply(autellix_cluster(name, NAMESPACE, policy=policy))
    _wait_ready(installation)
    tell(lab.kubectl("get", "axc", "-n", NAMESPACE))

    tell(f"[4/5] agent traffic: {len(scenario.LONG)} long programs hold both slots, {len(scenario.SHORT)} short come")
    results = {name: asyncio.run(_traffic(installation, name, tell)) for name in CLUSTERS}

    tell("[5/5] what became of it\n")
    tell(scenario.comparison(results["stock"], results["agents"]))
    tell("\nThe process table of `agents`, as etcd holds it:\n")
    tell(lab.kubectl("exec", "-n", NAMESPACE, "deploy/agents-controller", "--", "autellix-controller", "programs"))


def _wait_ready(installation: Installation) -> None:
    def describe() -> str:
        found = (installation.condition(name, NAMESPACE) for name in CLUSTERS)
        return "; ".join(f"{name}: {c['message'] or c['reason']}" for name, c in zip(CLUSTERS, found, strict=True))

    with Heartbeat("engines load vLLM and the model", describe=describe, interval_seconds=10):
        for name in CLUSTERS:
            installation.wait_ready(name, NAMESPACE, seconds=_READY_SECONDS)


async def _traffic(installation: Installation, name: str, tell: Callable[[str], None]) -> scenario.Summary:
    endpoint = installation.endpoint(name, NAMESPACE)
    async with AsyncOpenAI(base_url=endpoint, api_key="demo", max_retries=0, timeout=300) as client:
        await run_program(client, SERVED_MODEL, Program(name="warm-up", calls=1, max_tokens=16))
        before = await _preemptions(installation, name)
        with Heartbeat(f"      {_TITLES[name]}: programs run", interval_seconds=10) as heartbeat:
            runs: Sequence[ProgramRun] = await run_programs(client, SERVED_MODEL, scenario.PROGRAMS)
        tell(
            f"      {_TITLES[name]}: {len(runs)} programs, {sum(len(r.calls) for r in runs)} calls "
            f"in {heartbeat.seconds:.0f} s"
        )
        return scenario.summarise(_TITLES[name], runs, await _preemptions(installation, name) - before)


async def _preemptions(installation: Installation, name: str) -> int:
    key = installation.engine_key(name, NAMESPACE)
    pages = [
        await scrape(f"http://{pod['status']['podIP']}:8000/metrics", key)
        for pod in installation.pods(name, NAMESPACE, "engine")
    ]
    return int(sum(total(page, "autellix_engine_preemptions_total") for page in pages))


def how_to_go_on(installation: Installation, folder: Path) -> str:
    """What a user can do next."""
    endpoint = installation.endpoint("agents", NAMESPACE)
    body = json.dumps({"model": SERVED_MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 16})
    return f"""
It keeps running. The endpoint speaks the OpenAI API inside the throw-away network:

  make kubernetes-shell LAB={folder}
  curl {endpoint}/chat/completions -H 'Content-Type: application/json' -H 'X-Autellix-Session: my-agent' -d '{body}'
  kubectl get axc -n {NAMESPACE}

`make demo-down` removes every trace."""
