"""Whether a call would get its KV cache, before anybody gives way for it."""

from collections.abc import Mapping, Sequence

from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.request import Request

from autellix_engine.policy import Call


class MemoryForecast:
    """An estimate for one decision: vLLM itself decides at admission.

    Calls are asked about in the order of the plan, and one that is asked about after another implies that the other
    was admitted. Blocks of a victim count as free if nobody else uses them; its cached blocks are free in vLLM's sense
    too. The estimate errs towards "fits", so that it never keeps a call from being tried.
    """

    def __init__(self, manager: KVCacheManager, requests: Mapping[str, Request]) -> None:
        self._manager = manager
        self._requests = requests
        self._free: int = manager.block_pool.get_num_free_blocks()
        self._smallest_block: int = min((m.block_size for m in manager.coordinator.single_type_managers), default=1)
        self._promised = 0
        self._asked: tuple[str, int] | None = None
        self._freed: dict[str, int] = {}

    def fits(self, call: Call, victims: Sequence[Call]) -> bool:
        """Whether the call's known tokens would find blocks once the victims have given way."""
        if self._asked is None or self._asked[0] != call.key:
            if self._asked is not None:
                self._promised += self._asked[1]
            self._asked = (call.key, self._blocks_needed(self._requests[call.key]))
        missing = self._promised + self._asked[1] - self._free
        return missing <= 0 or missing <= sum(map(self._blocks_freed, victims))

    def _blocks_needed(self, request: Request) -> int:
        if request.num_computed_tokens > 0:  # it has its blocks
            return 0
        at_most: int = self._manager.num_kv_cache_groups * (request.num_tokens // self._smallest_block + 1)
        if self._promised + at_most <= self._free:  # plenty: no need to look into the prefix cache
            return at_most
        blocks, cached_tokens, _ = self._manager.get_computed_blocks(request)
        needed: int = self._manager.coordinator.get_num_blocks_to_allocate(
            request_id=request.request_id,
            num_tokens=min(request.num_tokens, self._manager.max_model_len),
            new_computed_blocks=blocks.blocks,
            num_encoder_tokens=0,
            total_computed_tokens=cached_tokens,
            num_local_computed_tokens=cached_tokens,
            num_tokens_main_model=min(request.num_tokens, self._manager.max_model_len),
            apply_admission_cap=True,
            prefill_end=max(request.num_prompt_tokens, request.num_tokens - 1),
        )
        return needed

    def _blocks_freed(self, victim: Call) -> int:
        if victim.key not in self._freed:
            groups = self._manager.get_blocks(victim.key).blocks
            self._freed[victim.key] = sum(b.ref_cnt == 1 and not b.is_null for group in groups for b in group)
        return self._freed[victim.key]
