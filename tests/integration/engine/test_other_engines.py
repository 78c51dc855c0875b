"""Engines that serve something else than plain text: adapters, and embeddings. Real models, a few steps."""

import random
from pathlib import Path

import pytest
from vllm import PoolingParams
from vllm.lora.request import LoRARequest

from autellix_wire.context import ProgramContext
from support.in_process_engine import InProcessEngine
from support.tiny_adapter import RANK, tiny_adapter

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]

LEVELS = {"queue_bounds_ms": [600_000, 6_000_000], "min_run_ms": 0}


def prompt(seed: str, length: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(10, 1_500) for _ in range(length)]


def test_a_better_call_whose_adapter_has_no_room_waits_without_driving_anybody_out(tmp_path: Path) -> None:
    """Two adapters, and room for one."""
    one, two = (LoRARequest(f"adapter-{i}", i, str(tiny_adapter(tmp_path / f"{i}", seed=i))) for i in (1, 2))
    with InProcessEngine(
        slots=2, blocks=60, scheduling=LEVELS, enable_lora=True, max_loras=1, max_lora_rank=RANK
    ) as engine:
        alone = {}
        for name, adapter in (("long", one), ("better", two), ("same", one)):
            engine.add(name, prompt(name, 60), 20, adapter=adapter)
            engine.run()
            engine.scheduler.reset_prefix_cache()
            alone[name] = engine.outputs.pop(name)
        engine.add("plain", prompt("long", 60), 20)
        engine.run()
        assert engine.outputs.pop("plain") != alone["long"], "the adapters change what is generated"

        served = ProgramContext(program="served", call="long", service_ms=9e6)
        for name in ("long", "same"):
            engine.add(name, prompt(name, 60), 20, served, adapter=one)
        engine.run(until=lambda: len(engine.outputs.get("same", [])) >= 3)
        engine.add("better", prompt("better", 60), 20, ProgramContext(program="fresh", call="better"), adapter=two)
        engine.run()
        assert engine.outputs == alone
        assert engine.scheduler.core.counts["preemptions_policy"] == 0
        engine.scheduler.core.check_integrity()


def test_embeddings_of_more_prompts_than_slots_are_all_made() -> None:
    with InProcessEngine(slots=2, blocks=60, scheduling=LEVELS, runner="pooling", convert="embed") as engine:
        for i in range(5):
            engine.vllm.add_request(f"{i}", {"prompt_token_ids": prompt(f"{i}", 40)}, PoolingParams(task="embed"))
        vectors = {}
        while engine.vllm.has_unfinished_requests():
            for output in engine.vllm.step():
                vectors[output.request_id] = output.outputs.data.tolist()
            engine.scheduler.core.check_integrity()
        assert sorted(vectors) == ["0", "1", "2", "3", "4"]
        assert len({tuple(vector) for vector in vectors.values()}) == 5
        assert engine.scheduler.core.counts["ends"] == 5
        assert len(engine.scheduler.core) == len(engine.scheduler.core.programs) == 0
