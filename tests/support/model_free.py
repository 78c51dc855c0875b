"""Drives a scheduler class with vLLM's real objects and no model: the outputs are made up, time is a counter."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    VllmConfig,
)
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

from autellix_wire.context import ProgramContext
from support.tiny_model import tiny_model

BLOCK = 16  # tokens


class ManualClock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds

    def advance_ms(self, ms: float) -> None:
        self.seconds += ms / 1000


def vllm_config(
    *,
    slots: int = 2,
    blocks: int = 1_000,
    token_budget: int = 8_192,
    scheduling: Mapping[str, object] | None = None,
    prefix_caching: bool = True,
    asynchronous: bool = False,
) -> VllmConfig:
    """The configuration of an engine that will never load its model."""
    config = VllmConfig(
        model_config=ModelConfig(model=str(tiny_model()), dtype="bfloat16", skip_tokenizer_init=True),
        scheduler_config=SchedulerConfig(
            max_num_seqs=slots,
            max_num_batched_tokens=token_budget,
            max_model_len=8_192,
            is_encoder_decoder=False,
            enable_chunked_prefill=True,
        ),
        cache_config=CacheConfig(block_size=BLOCK, enable_prefix_caching=prefix_caching),
        parallel_config=ParallelConfig(),
        device_config=DeviceConfig("cpu"),
        additional_config={"autellix": dict(scheduling or {})},
    )
    config.cache_config.num_gpu_blocks = blocks
    config.scheduler_config.async_scheduling = asynchronous
    return config


def make_scheduler(scheduler_class: type[Any], config: VllmConfig, **kwargs: Any) -> Any:
    """Makes the scheduler as the engine core does."""
    init_none_hash(sha256)
    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32)
    return scheduler_class(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=config.cache_config.num_gpu_blocks,
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
        ),
        structured_output_manager=StructuredOutputManager(config),
        block_size=BLOCK,
        hash_block_size=BLOCK,
        include_finished_set=False,
        log_stats=True,
        **kwargs,
    )


def make_request(
    request_id: str,
    *,
    prompt: Sequence[int] | int = 8,
    output: int = 4,
    context: ProgramContext | None = None,
    xargs: Mapping[str, object] | None = None,
    priority: int = 0,
    arrival: float = 0.0,
    **kwargs: Any,
) -> Request:
    """A request for ``output`` tokens; a prompt given as a number is so many tokens that no other prompt has."""
    tokens = [hash((request_id, i)) % 1_000_000 for i in range(prompt)] if isinstance(prompt, int) else list(prompt)
    extra = dict(xargs or {}) | (context.to_xargs() if context else {})
    sampling = SamplingParams(max_tokens=output, ignore_eos=True, extra_args=extra or None, **kwargs)
    sampling.update_from_generation_config({}, eos_token_id=0)
    return Request(
        request_id,
        tokens,
        sampling,
        pooling_params=None,
        arrival_time=arrival,
        priority=priority,
        block_hasher=get_request_block_hasher(BLOCK, sha256),
    )


class Driver:
    """Runs steps of a scheduler as an engine core would: ``depth`` outputs in flight, ``step_ms`` for each step."""

    def __init__(self, scheduler: Any, clock: ManualClock, *, depth: int = 1, step_ms: float = 10.0) -> None:
        self.scheduler = scheduler
        self.clock = clock
        self.step_ms = step_ms
        self._depth = depth
        self._in_flight: deque[Any] = deque()
        self.ran: list[frozenset[str]] = []
        """For each step the requests in it."""
        self.tokens: dict[str, list[int]] = {}
        """What was delivered for each request."""
        self.finished: dict[str, str] = {}

    def step(self) -> Any:
        """One step; returns what was scheduled."""
        output = self.scheduler.schedule()
        self.ran.append(frozenset(output.num_scheduled_tokens))
        self._in_flight.append(output)
        self.clock.advance_ms(self.step_ms)
        if len(self._in_flight) >= self._depth:
            self.deliver()
        return output

    def deliver(self) -> None:
        """Hands over the oldest output in flight. The token of a position is the position, so that any repeated,
        lost or reordered one shows."""
        output = self._in_flight.popleft()
        ids = list(output.num_scheduled_tokens)
        sampled = [self._sample(request_id, output) for request_id in ids]
        results = self.scheduler.update_from_output(
            output,
            ModelRunnerOutput(
                req_ids=ids,
                req_id_to_index={request_id: i for i, request_id in enumerate(ids)},
                sampled_token_ids=sampled,
                logprobs=None,
                prompt_logprobs_dict={},
                pooler_output=[],
            ),
        )
        for outputs in results.values():
            for result in outputs.outputs:
                self.tokens.setdefault(result.request_id, []).extend(result.new_token_ids)
                if result.finish_reason is not None:
                    self.finished[result.request_id] = str(result.finish_reason)

    def run(self, until: str | None = None, limit: int = 10_000) -> int:
        """Steps until the request (or everything) has finished; returns the number of steps."""
        for steps in range(limit):
            if (until in self.finished) if until else not self.scheduler.has_requests():
                return steps
            self.step()
        raise AssertionError(f"not finished after {limit} steps: {list(self.scheduler.requests)}")

    def abort(self, *request_ids: str) -> None:
        self.scheduler.finish_requests(list(request_ids), RequestStatus.FINISHED_ABORTED)

    def _sample(self, request_id: str, output: Any) -> list[int]:
        """A token if the request's last known position was computed in this step, as the model runner does it."""
        for new in output.scheduled_new_reqs:
            if new.req_id == request_id:
                known, computed = len(new.prompt_token_ids), new.num_computed_tokens
                return [known] if computed + output.num_scheduled_tokens[request_id] >= known else []
        cached = output.scheduled_cached_reqs
        index = cached.req_ids.index(request_id)
        request = self.scheduler.requests.get(request_id)
        if request is None:
            return [0]
        end = cached.num_computed_tokens[index] + output.num_scheduled_tokens[request_id]
        known = request.num_prompt_tokens + cached.num_output_tokens[index]
        return [end] if end >= known else []
