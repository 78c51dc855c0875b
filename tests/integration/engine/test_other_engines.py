"""Engines that do something else than one token of plain text a step. Real models, a few steps."""

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


def repeated(seed: str) -> list[int]:
    """A prompt whose continuation can be guessed."""
    return prompt(seed, 40) * 4


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


@pytest.mark.filterwarnings(r"ignore:[\s\S]*reflected list")  # of vLLM's own proposer
def test_a_call_whose_tokens_are_guessed_ahead_is_preempted_and_goes_on_as_if_nothing_had_been() -> None:
    guesses = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1, "prompt_lookup_max": 3}
    with InProcessEngine(slots=1, blocks=60, scheduling=LEVELS, speculative_config=guesses) as engine:
        alone, steps = {}, {}
        for name in ("long", "better"):
            before = engine.steps
            engine.add(name, repeated(name), 80)
            engine.run()
            engine.scheduler.reset_prefix_cache()
            alone[name], steps[name] = engine.outputs.pop(name), engine.steps - before
        assert min(steps.values()) < 70, "some guesses are right: without them a step makes one token"

        engine.add("long", repeated("long"), 80, ProgramContext(program="served", call="long", service_ms=9e6))
        engine.run(until=lambda: len(engine.outputs.get("long", [])) >= 10)
        engine.add("better", repeated("better"), 80, ProgramContext(program="fresh", call="better"))
        engine.run()
        assert engine.outputs == alone
        assert engine.scheduler.core.counts["preemptions_policy"] == 1
        engine.scheduler.core.check_integrity()
