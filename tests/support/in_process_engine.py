"""A real vLLM engine with the tiny model, in this process: no server, no other process, steps under our control."""

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from vllm import EngineArgs, LLMEngine, SamplingParams
from vllm.lora.request import LoRARequest

from autellix_wire.context import ProgramContext
from support.tiny_model import tiny_model

_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
}

#: What vLLM's own process sleeps after a step in which no call could run: other threads get their turn.
_PAUSE_SECONDS = 0.001


class InProcessEngine:
    """Float32, so that a sum in another order (recomputed, or batched with others) does not change a greedy token."""

    def __init__(self, *, slots: int, blocks: int, scheduling: Mapping[str, object], **arguments: Any) -> None:
        """``arguments``: more of vLLM's, in place of those below."""
        before = {name: os.environ.get(name) for name in _ENVIRONMENT}
        os.environ.update(_ENVIRONMENT)
        # vLLM leaves its sockets behind.
        self._sockets = tempfile.TemporaryDirectory(prefix="vllm-")
        temporary, tempfile.tempdir = tempfile.tempdir, self._sockets.name
        try:
            settings: dict[str, Any] = {
                "model": str(tiny_model()),
                "dtype": "float32",
                "max_model_len": 1_600,
                "max_num_seqs": slots,
                "block_size": 32,
                "num_gpu_blocks_override": blocks,
                "enforce_eager": True,
                "scheduler_cls": "autellix_engine.scheduler.ProgramScheduler",
                "additional_config": {"autellix": dict(scheduling)},
            }
            self._engine = LLMEngine.from_engine_args(EngineArgs(**settings | arguments))
        finally:
            tempfile.tempdir = temporary
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
        core = self._engine.engine_core.engine_core
        self._post_step = core.post_step
        core.post_step = self._give_way
        self.outputs: dict[str, list[int]] = {}
        self.finish_reasons: dict[str, str | None] = {}
        self.steps = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._engine.engine_core.shutdown()
        self._sockets.cleanup()

    @property
    def scheduler(self) -> Any:
        return self._engine.engine_core.engine_core.scheduler

    @property
    def vllm(self) -> LLMEngine:
        """The engine itself."""
        return self._engine

    def replace_scheduler(self, scheduler_class: type[Any], scheduling: Mapping[str, object], **kwargs: Any) -> None:
        """Puts a fresh scheduler, with an empty cache, into an engine that has nothing to do."""
        assert not self._engine.has_unfinished_requests()
        self.settle()
        old = self.scheduler
        old.vllm_config.additional_config = {"autellix": dict(scheduling)}
        self._engine.engine_core.engine_core.scheduler = scheduler_class(
            vllm_config=old.vllm_config,
            kv_cache_config=old.kv_cache_config,
            structured_output_manager=old.structured_output_manager,
            include_finished_set=False,
            log_stats=True,
            block_size=old.block_size,
            hash_block_size=old.block_size,
            **kwargs,
        )

    def add(
        self,
        request_id: str,
        prompt: Sequence[int],
        output: int,
        context: ProgramContext | None = None,
        adapter: LoRARequest | None = None,
        **sampling: Any,
    ) -> None:
        """Sends a request for exactly ``output`` tokens, greedy unless told otherwise."""
        parameters = SamplingParams(
            max_tokens=output,
            ignore_eos=True,
            extra_args=dict(context.to_xargs()) if context else None,
            **({"temperature": 0.0} | sampling),
        )
        self._engine.add_request(request_id, {"prompt_token_ids": list(prompt)}, parameters, lora_request=adapter)

    def abort(self, request_id: str) -> None:
        self._engine.abort_request([request_id])

    def step(self) -> None:
        self.steps += 1
        for output in self._engine.step():
            self.outputs[output.request_id] = list(output.outputs[0].token_ids)
            if output.finished:
                self.finish_reasons[output.request_id] = output.outputs[0].finish_reason

    def run(self, until: Callable[[], bool] | None = None, seconds: float = 120) -> None:
        """Steps until the condition holds, or until no call is left.

        The limit is one of time: thousands of steps go by while a call waits for a transfer.
        """
        deadline = time.monotonic() + seconds
        while not (until() if until else not self._engine.has_unfinished_requests()):
            if time.monotonic() > deadline:
                raise AssertionError(f"not there within {seconds:.0f} s, {self.steps} steps since the start")
            self.step()

    def settle(self) -> None:
        """Steps until no call, no transfer and no message to the worker about one is left."""
        self.run(until=lambda: not (self._engine.has_unfinished_requests() or self.scheduler.has_requests()))

    def alone(self, request_id: str, prompt: Sequence[int], output: int) -> list[int]:
        """The tokens of the same request when nothing interrupts it."""
        self.scheduler.reset_prefix_cache()
        self.add(request_id, prompt, output)
        self.run()
        self.scheduler.reset_prefix_cache()
        return self.outputs.pop(request_id)

    def _give_way(self, model_executed: bool) -> None:
        """As vLLM's own process does, without which polling takes the processor from the threads that it waits for."""
        self._post_step(model_executed)
        if not model_executed and self.scheduler.has_requests():
            time.sleep(_PAUSE_SECONDS)
