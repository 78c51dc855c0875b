"""The demo's acts, in order: Kubernetes, images, chart, two clusters, traffic, the table."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path

from openai import AsyncOpenAI

from demo import scenario
from onenode import images
from onenode.errors import OnenodeError
from onenode.lab import Lab
from onenode.progress import Heartbeat
from onenode.target import LabTarget, Target, chosen_context
from support.installation import OPERATOR_NAMESPACE, Installation
from support.prometheus import total
from support.resources import SERVED_MODEL, autellix_cluster
from support.traffic import Program, ProgramRun, run_programs

NAMESPACE = "autellix-demo"
#: The same cluster twice; only the order of calls differs.
CLUSTERS = {"stock": "Fcfs", "agents": "Plas"}
_TITLES = {"stock": "stock order", "agents": "PLAS"}
_READY_SECONDS = 600
_HELD_SECONDS = 30
_LOOK_SECONDS = 0.05


def prepare(lab: Lab, tell: Callable[[str], None]) -> Installation:
    """A Kubernetes with our images: the cluster that the person named, or the lab, started anew."""
    tell("[1/5] images and Kubernetes")
    named = chosen_context()
    if named is not None:
        return elsewhere(named)
    lab.up(images.archives())
    lab.enter_network()
    return Installation(LabTarget(lab))


def elsewhere(target: Target) -> Installation:
    """The demo on a cluster that goes on without it, and that others may use."""
    return Installation(target, lends_files=False, watched=(NAMESPACE,))


def play(installation: Installation, tell: Callable[[str], None]) -> None:
    """Plays the demo up to the comparison, and leaves the Kubernetes running."""
    tell("[2/5] helm install")
    # A cluster that the person named may have it from a demo before.
    with Heartbeat("      the operator starts", interval_seconds=10):
        installation.install(upgrade=True)

    tell("[3/5] kubectl apply: two AutellixClusters, one in stock order (FCFS), one with PLAS")
    with Heartbeat("      the clusters are applied", interval_seconds=10):
        installation.namespace(NAMESPACE)
        for name, policy in CLUSTERS.items():
            installation.apply(autellix_cluster(name, NAMESPACE, policy=policy))
    _wait_ready(installation)
    tell(installation.target.kubectl("get", "axc", "-n", NAMESPACE))

    tell(f"[4/5] agent traffic: {len(scenario.LONG)} long programs hold both slots, {len(scenario.SHORT)} short come")
    results = {name: asyncio.run(_traffic(installation, name, tell)) for name in CLUSTERS}

    tell("[5/5] what became of it\n")
    tell(scenario.comparison(results["stock"], results["agents"]))
    tell("\nThe process table of `agents`, as etcd holds it:\n")
    tell(
        installation.target.kubectl(
            "exec", "-n", NAMESPACE, "deploy/agents-controller", "--", "autellix-controller", "programs"
        )
    )


def _wait_ready(installation: Installation) -> None:
    def describe() -> str:
        found = (installation.condition(name, NAMESPACE) for name in CLUSTERS)
        return "; ".join(f"{name}: {c['message'] or c['reason']}" for name, c in zip(CLUSTERS, found, strict=True))

    with Heartbeat("engines load vLLM and the model", describe=describe, interval_seconds=10):
        for name in CLUSTERS:
            installation.wait_ready(name, NAMESPACE, seconds=_READY_SECONDS)


async def _traffic(installation: Installation, name: str, tell: Callable[[str], None]) -> scenario.Summary:
    with installation.endpoint(name, NAMESPACE) as url:
        return await _run(installation, name, url, tell)


async def _run(installation: Installation, name: str, url: str, tell: Callable[[str], None]) -> scenario.Summary:
    async with AsyncOpenAI(base_url=url, api_key="demo", max_retries=0, timeout=300) as client:

        async def run(programs: Sequence[Program]) -> list[ProgramRun]:
            return await run_programs(client, SERVED_MODEL, programs)

        with installation.engine_pages(name, NAMESPACE) as pages:

            def metric(series: str) -> int:
                return int(sum(total(page, series) for page in pages()))

            async def running() -> int:
                return await asyncio.to_thread(metric, "vllm:num_requests_running")

            await run([Program(name="warm-up", calls=1, max_tokens=16)])
            before = metric("autellix_engine_preemptions_total")
            with Heartbeat(f"      {_TITLES[name]}: programs run", interval_seconds=10) as heartbeat:
                runs = await play_programs(run, running)
            tell(
                f"      {_TITLES[name]}: {len(runs)} programs, {sum(len(r.calls) for r in runs)} calls "
                f"in {heartbeat.seconds:.0f} s"
            )
            return scenario.summarise(_TITLES[name], runs, metric("autellix_engine_preemptions_total") - before)


async def play_programs(
    run: Callable[[Sequence[Program]], Coroutine[None, None, list[ProgramRun]]], running: Callable[[], Awaitable[int]]
) -> list[ProgramRun]:
    """Plays the scenario: the short programs begin when the long ones hold every slot, however fast the engine is.

    ``run`` plays programs, ``running`` gives how many calls run on the engine now. Raises OnenodeError if the long
    programs end, or half a minute passes, before they hold every slot.
    """
    deadline = time.monotonic() + _HELD_SECONDS
    async with asyncio.TaskGroup() as group:
        long = group.create_task(run(scenario.LONG))
        while not (held := await running() >= scenario.SLOTS) and not long.done() and time.monotonic() < deadline:
            await asyncio.sleep(_LOOK_SECONDS)
        short = group.create_task(run(scenario.SHORT if held else ()))
        if not held:
            long.cancel()
    if not held:
        raise OnenodeError("the long programs did not hold every slot of the engine")
    return [*long.result(), *short.result()]


def how_to_go_on(folder: Path) -> str:
    """What a user can do next."""
    body = json.dumps({"model": SERVED_MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 16})
    own = chosen_context(installs=False) is not None
    shell = "# in a pod of that cluster" if own else f"make kubernetes-shell LAB={folder}"
    removal = (
        f"removes the demo and the operator; the AutellixCluster API and namespace {OPERATOR_NAMESPACE} stay."
        if own
        else "removes every trace."
    )
    return f"""
It keeps running. The endpoint speaks the OpenAI API inside the cluster's network:

  {shell}
  kubectl get axc -n {NAMESPACE}
  curl http://agents.{NAMESPACE}.svc.cluster.local/v1/chat/completions -H 'Content-Type: application/json' \\
    -H 'X-Autellix-Session: my-agent' -d '{body}'

`make demo-down` {removal}"""
