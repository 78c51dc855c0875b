"""The scheduler's side of the connector: programs, bounds for a step, what calls found, the price of preemptions."""

from collections.abc import Iterable, Mapping
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import OffloadingConnectorMetadata
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import OffloadingConnectorScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.outputs import KVConnectorOutput
from vllm.v1.request import Request

from autellix_engine.swap import metrics
from autellix_engine.swap.device_side import SwapWorkerMetadata
from autellix_engine.swap.interface import CallTraffic, Fits
from autellix_engine.swap.manager import Expected, SwapManager
from autellix_engine.swap.prefetch import Prefetcher
from autellix_engine.swap.settings import SIZE_SETTING, InvalidSwapSettings
from autellix_engine.swap.tier.price import Prices
from autellix_engine.swap.weighing import Weighing, observe_step


class SwapConnectorScheduler(OffloadingConnectorScheduler):  # type: ignore[misc]  # vLLM is untyped to us
    """Tells the host tier what becomes of calls, and counts what they found."""

    manager: SwapManager

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.config.kv_group_configs[0].sliding_window_size_in_chunks is not None:
            # Such a model drops the beginning of a context, and the tier keeps beginnings.
            raise InvalidSwapSettings(
                f"{SIZE_SETTING}: this model does not attend to its whole context; swapping works for models that do; "
                "set it to 0"
            )
        self._tokens_per_block: int = self.config.kv_group_configs[0].tokens_per_chunk
        self._loading = 0  # blocks whose load began in this step
        self._lost: dict[str, int] = {}  # tokens that were computed when the request was preempted
        self._host_tokens: dict[str, int] = {}  # prompt tokens from the host, by request
        self.prices = Prices(self.manager.block_bytes / self._tokens_per_block)
        self._weighs = self.manager.weighs_preemptions
        self._prefetcher: Prefetcher | None = None
        self._prefetches: dict[int, int] = {}  # by job: devices that have not reported its end
        self._failed_prefetches: set[int] = set()

    def bind_prefetcher(self, prefetcher: Prefetcher) -> None:
        """From now on contexts are brought back ahead of calls."""
        self._prefetcher = prefetcher

    # ---- what our scheduler says

    def expect(self, request_id: str, program: str, level: int, *, transient: bool) -> None:
        """See `HostTierPort`."""
        self.manager.expect(request_id, Expected(program, level, transient))

    def preempted(self, request: Request, level: int) -> None:
        """See `HostTierPort`."""
        status = self._req_status[request.request_id]
        self.manager.tier.waits(self.manager.call(status.req_context), level)
        self._lost[request.request_id] = request.num_computed_tokens

    def end_program(self, program: str) -> None:
        """See `HostTierPort`."""
        self.manager.tier.end(program)

    def traffic(self, request_id: str) -> CallTraffic:
        """See `HostTierPort`."""
        status = self._req_status.get(request_id)
        if status is None:
            return CallTraffic()
        moved = self.manager.call(status.req_context).moved_blocks
        return CallTraffic(moved * self.manager.block_bytes, self._host_tokens.get(request_id, 0))

    def weigh(self, fits: Fits, requests: Mapping[str, Request], running: Iterable[Request]) -> Fits:
        """See `HostTierPort`."""
        return Weighing(self.prices, requests, running, self._kept_tokens, fits) if self._weighs else fits

    def stepped(self, output: SchedulerOutput, seconds: float) -> None:
        """See `HostTierPort`."""
        observe_step(self.prices, output, seconds)

    # ---- what vLLM says

    def get_num_new_matched_tokens(
        self, request: Request, num_computed_tokens: int, max_num_new_tokens: int | None = None
    ) -> tuple[int | None, bool]:
        """See the base. A load that would exceed this step's bytes is put off, unless it is the step's first."""
        found, asynchronous = super().get_num_new_matched_tokens(request, num_computed_tokens, max_num_new_tokens)
        blocks = (found or 0) // self._tokens_per_block
        if blocks and self._loading and self._loading + blocks > self.manager.blocks_per_step:
            return None, False
        return found, asynchronous

    def update_state_after_alloc(self, request: Request, blocks: Any, num_external_tokens: int) -> None:
        """See the base."""
        super().update_state_after_alloc(request, blocks, num_external_tokens)
        self._loading += num_external_tokens // self._tokens_per_block

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> OffloadingConnectorMetadata:
        """See the base."""
        self._note_starts(scheduler_output)
        meta = super().build_connector_meta(scheduler_output)
        for request_id in scheduler_output.preempted_req_ids or ():
            # When it resumes all its blocks are offered again, for some may have left the pool meanwhile.
            self._ask_again(request_id, 0)
        for request_id, block in self.manager.put_off.items():
            self._ask_again(request_id, block)
        self.manager.put_off.clear()
        nothing_waits = not self._lost and not meta.load_jobs
        if self._prefetcher is not None and nothing_waits and (job := self._prefetcher.begin()) is not None:
            job_id = self._generate_job_id()
            self._prefetches[job_id] = self.config.num_workers
            meta.load_jobs[job_id] = job
        self._loading = 0
        return meta

    def has_pending_push_work(self) -> bool:
        """See the base."""
        return bool(self._prefetches) or bool(super().has_pending_push_work())

    def update_connector_output(self, connector_output: KVConnectorOutput) -> None:
        """See the base. It knows no failures: what failed is told to the manager before it hears of the end."""
        meta = connector_output.kv_connector_worker_meta
        if isinstance(meta, SwapWorkerMetadata):
            for job_id in meta.failed_jobs & self._jobs.keys():
                self.manager.note_failure(self._jobs[job_id].keys)
            self._end_prefetches(meta)
            for labels, count in meta.paths.items():
                self.manager.reporter.add(metrics.TRANSFERS, count, *labels)
            if loads := meta.transfer_stats.load.bytes:
                # Devices move their shares side by side.
                self.prices.seconds_per_byte.add(meta.transfer_stats.load.time / loads / self.config.num_workers)
        super().update_connector_output(connector_output)

    def request_finished(self, request: Request) -> tuple[bool, dict[str, Any] | None]:
        """See the base."""
        self.prices.output_tokens.add(request.num_output_tokens)
        self._lost.pop(request.request_id, None)
        self._host_tokens.pop(request.request_id, None)
        result: tuple[bool, dict[str, Any] | None] = super().request_finished(request)
        return result

    def _end_prefetches(self, meta: SwapWorkerMetadata) -> None:
        """Takes the ends of jobs without a request out of the report: the base does not know them."""
        for job_id in self._prefetches.keys() & meta.completed_jobs.keys():
            self._prefetches[job_id] -= meta.completed_jobs.pop(job_id)
            if job_id in meta.failed_jobs:
                self._failed_prefetches.add(job_id)
            if self._prefetches[job_id] == 0 and self._prefetcher is not None:
                del self._prefetches[job_id]
                self._prefetcher.end(ok=job_id not in self._failed_prefetches)
                self._failed_prefetches.discard(job_id)

    def _kept_tokens(self, request: Request) -> int:
        call = self.manager.call(self._req_status[request.request_id].req_context)
        return self.manager.tier.kept_blocks(call) * self._tokens_per_block

    def _ask_again(self, request_id: str, block: int) -> None:
        if status := self._req_status.get(request_id):
            status.group_states[0].next_stored_chunk_idx = block

    def _note_starts(self, scheduler_output: SchedulerOutput) -> None:
        """Requests that got a slot in this step: how much of what they had was found, and where."""
        cached = scheduler_output.scheduled_cached_reqs
        starts = [(new.req_id, new.num_computed_tokens) for new in scheduler_output.scheduled_new_reqs]
        starts += [
            (request_id, computed)
            for request_id, computed in zip(cached.req_ids, cached.num_computed_tokens, strict=True)
            if request_id in cached.resumed_req_ids
        ]
        for request_id, computed in starts:
            status = self._req_status[request_id]
            call = self.manager.call(status.req_context)
            self.manager.tier.runs(call)
            gpu = min(computed, status.num_locally_computed_tokens)
            if request_id in self._lost:
                self.manager.reporter.found(metrics.RESUMED, self._lost.pop(request_id), gpu, computed - gpu)
                continue
            known = self.manager.tier.known_blocks(call, status.group_states[0].offload_keys) * self._tokens_per_block
            self.manager.reporter.found(metrics.CONTEXT, known, gpu, computed - gpu)
            self._host_tokens[request_id] = computed - gpu
