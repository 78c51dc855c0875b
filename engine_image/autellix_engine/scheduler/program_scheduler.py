"""vLLM's scheduler, with the decision core in place of its order of requests.

The class translates and copies nothing of its base: the base still allocates, batches and builds outputs. It serves
its waiting queues in their order, so they are views of the core's order; and it preempts only when memory runs out,
so requests that give way for a better call are preempted here, before each step.
"""

import os
import time
from collections.abc import Callable, Sequence, Set
from typing import Any, Final

import vllm
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.request_queue import SchedulingPolicy
from vllm.v1.engine import EngineCoreOutputs
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from autellix_engine.compatibility import SINGLE, check_layout, check_version
from autellix_engine.launcher.handover import scheduling_settings
from autellix_engine.policy import Cadence, Call, CallState, Core
from autellix_engine.records.channel import make_publisher
from autellix_engine.records.interface import RecordPublisher
from autellix_engine.scheduler.context import ContextReader
from autellix_engine.scheduler.ledger import Ledger
from autellix_engine.scheduler.log import logger
from autellix_engine.scheduler.memory import MemoryForecast
from autellix_engine.scheduler.reports import Reporter
from autellix_engine.scheduler.request_queues import KvHoldingQueue, WaitingQueue
from autellix_engine.scheduler.steps import StepClock
from autellix_engine.swap.interface import host_tier


class ProgramScheduler(AsyncScheduler):  # type: ignore[misc]  # vLLM is untyped to us
    """Schedules the calls of the least-served programs first.

    Settings come with ``--additional-config``; the channel for records is named by the environment. Raises
    UnsupportedVllm, UnsupportedLayout or InvalidSettings when it is made in the wrong surroundings.
    """

    def __init__(
        self,
        *args: Any,
        clock: Callable[[], float] = time.monotonic,
        publisher: RecordPublisher | None = None,
        **kwargs: Any,
    ) -> None:
        """``clock`` gives seconds and never goes back; it and the publisher are vLLM's to leave out."""
        check_version(vllm.__version__)
        super().__init__(*args, **kwargs)
        check_layout({name: getattr(self.parallel_config, name) for name in SINGLE})
        self._clock = clock
        settings = scheduling_settings(self.vllm_config.additional_config)
        self.core: Final = Core(settings)
        self.publisher: Final = publisher if publisher is not None else make_publisher(os.environ)
        self._cadence = Cadence(steps_per_decision=settings.steps_per_decision, spare_calls=settings.spare_calls)
        self._contexts = ContextReader()
        self._ledger = Ledger()
        self._steps = StepClock()
        self._host_tier = host_tier(self.connector)
        self._reporter = Reporter(self.core, self.publisher)
        self._unready: set[Request] = set()  # cannot run for now, for a reason that vLLM has not noticed yet
        self._taken: dict[str, Request] = {}
        self.waiting = WaitingQueue(self.core, self._taken)
        self.kv_holding_waiting = KvHoldingQueue(self.core, self._taken, self._yields)
        # When memory runs out the base evicts max(priority, arrival time): with the level as priority that is the
        # lowest level, latest first.
        self.policy = SchedulingPolicy.PRIORITY
        logger.info("Scheduling programs: %s", settings.model_dump_json())

    # ---- what vLLM calls

    def add_request(self, request: Request) -> None:
        """A request arrives, or more input for one of a streaming session."""
        if request.request_id in self.requests:
            super().add_request(request)
            return
        self._forget_ended_programs()
        context = self._contexts.read(request)
        call = self.core.arrive(
            request.request_id,
            now=self._now(),
            program=context.program if context else None,
            thread=context.thread if context else "",
            service_ms=context.service_ms if context else 0.0,
            path_ms=context.path_ms if context else 0.0,
            wait_ms=context.wait_ms if context else 0.0,
            ready=self._can_run(request, self._adapters_in_use()),
            # If the last output of a session's turn arrives after a preemption, vLLM forgets the session's tokens.
            gives_way=not request.resumable,
        )
        if not call.ready:
            self._unready.add(request)
        request.priority = call.level  # whatever a client asked for: priority belongs to the scheduler
        self._ledger.open(request, context)
        self._host_tier.expect(request.request_id, call.program.id, call.level, transient=context is None)
        self._cadence.arrived()
        super().add_request(request)

    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:
        """One step: decide who gives way, let the base fill the batch, note who got a slot."""
        now = self._now()
        self._forget_ended_programs()
        self._update_readiness(now)
        prefill_cap = configured_cap = self.scheduler_config.long_prefill_token_threshold
        if self._pause_state == PauseState.UNPAUSED and self._cadence.due():
            admissions = self._make_room(now)
            prefill_cap = self._prefill_cap(admissions)
        self.scheduler_config.long_prefill_token_threshold = prefill_cap
        output = super().schedule(throttle_prefills)
        self.scheduler_config.long_prefill_token_threshold = configured_cap
        self.waiting.withheld = frozenset()
        for request in self._taken.values():
            self.core.start(request.request_id, now)
            request.priority = self.core.call(request.request_id).level
            scheduled = output.num_scheduled_tokens[request.request_id]
            self._ledger.started(request, request.num_computed_tokens - scheduled)
        self._taken.clear()
        self._steps.begin(output, output.num_scheduled_tokens, self._now())
        self._report(now)
        return output

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        """The step is done: every request in it is charged its whole executor time."""
        now = self._now()
        elapsed = self._steps.end(scheduler_output, now)
        self._host_tier.stepped(scheduler_output, elapsed / 1000)
        for call in self.core.charge(scheduler_output.num_scheduled_tokens, elapsed):
            self.requests[call.key].priority = call.level
        outputs: dict[int, EngineCoreOutputs] = super().update_from_output(scheduler_output, model_runner_output)
        self._report(now)
        return outputs

    def finish_requests(self, request_ids: Any, finished_status: RequestStatus) -> list[Request]:
        """Requests are ended from outside: aborted, or failed."""
        ended: list[Request] = super().finish_requests(request_ids, finished_status)
        self._report(self._now())
        return ended

    def has_requests(self) -> bool:
        """Whether there is anything to do; vLLM asks before it goes to sleep. Ended programs are forgotten before."""
        busy: bool = super().has_requests()
        if not busy and self._forget_ended_programs():
            self._report(self._now(), changed=True)
        return busy

    def shutdown(self) -> None:
        """The engine stops."""
        super().shutdown()
        self.publisher.close()

    # ---- what the base calls

    def _enqueue_waiting_request(self, request: Request) -> None:
        """A request comes to wait: a new one, or one of a streaming session whose turn has ended."""
        key, now = request.request_id, self._now()
        if self.core.call(key).state is CallState.RUNNING:
            self.core.pause(key, now)
            self.core.set_ready(key, self._can_run(request, self._adapters_in_use()), now)
        super()._enqueue_waiting_request(request)

    def _preempt_request(self, request: Request, timestamp: float, drop_stale_output: bool = False) -> None:
        """A request loses its slot: by our decision, or because the base needs its memory."""
        key, now = request.request_id, self._now()
        if self.core.call(key).state is CallState.RUNNING:
            self.core.preempt(key, now, for_memory=True)
        self._ledger.preempted(request)
        self._host_tier.preempted(request, self.core.call(key).level)
        super()._preempt_request(request, timestamp, drop_stale_output=drop_stale_output)
        if not self._can_run(request, self._adapters_in_use()):  # its output is still in flight
            self.core.set_ready(key, False, now)
            self._unready.add(request)

    def _free_request(
        self, request: Request, delay_free_blocks: bool = False
    ) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        """The one place that sees every end of a request: finished, aborted, failed."""
        parameters: tuple[dict[str, Any] | None, dict[str, Any] | None]
        traffic = self._host_tier.traffic(request.request_id)
        parameters = super()._free_request(request, delay_free_blocks=delay_free_blocks)
        key, now = request.request_id, self._now()
        if request.num_in_flight_tokens > 0:  # aborted in the middle of a step
            self.core.charge((key,), self._steps.elapsed(key, now))
        end = self.core.end(
            key, now, prompt_tokens=request.num_prompt_tokens, generated_tokens=request.num_output_tokens
        )
        self._unready.discard(request)
        self._cadence.finished()
        self.publisher.publish(self._ledger.close(request, end, traffic, self.publisher))
        return parameters

    # ---- parts of the above

    def _now(self) -> float:
        return self._clock() * 1000

    def _forget_ended_programs(self) -> bool:
        """Before a step, and before a call arrives: one that comes after its program's end belongs to a new one.

        Returns whether there were any.
        """
        ended = self.publisher.ended_programs()
        for program in ended:
            self.core.end_program(program)
            self._host_tier.end_program(program)
        return bool(ended)

    def _make_room(self, now: float) -> tuple[Call, ...]:
        """Asks the core for a decision and carries out its first half; the base admits in the core's order.

        Returns the calls that should be admitted now.
        """
        free_slots = self.max_num_active_reqs - len(self.running) - self.num_waiting_for_streaming_input
        began = self._clock()
        forecast = MemoryForecast(self.kv_cache_manager, self.requests)
        plan = self.core.plan(now, free_slots, self._host_tier.weigh(forecast.fits, self.requests, self.running))
        self._reporter.decisions.add(self._clock() - began)
        for call in plan.victims:
            request = self.requests[call.key]
            self.core.preempt(call.key, now)
            self.running.remove(request)
            self._preempt_request(request, now / 1000, drop_stale_output=self.requires_kv_delivery)
        # They do not resume in this very step: not in their own slots, should the better call not be admitted, and not
        # before the worker has heard that they lost them.
        self.waiting.withheld = frozenset(call.key for call in plan.victims)
        return plan.admissions

    def _prefill_cap(self, admissions: Sequence[Call]) -> int:
        """Most tokens of one prompt in this step; 0: no limit.

        The base gives a step's tokens to running calls first. So that a long prompt of a worse call, which takes all
        of them for many steps, does not hold up a better one that has a slot, the step leaves tokens for it: what it
        needs, and at most half.
        """
        configured: int = self.scheduler_config.long_prefill_token_threshold
        prefilling = [request for request in self.running if request.is_prefill_chunk] if admissions else []
        if all(request.priority <= admissions[0].level for request in prefilling):
            return configured
        needed = sum(self.requests[call.key].num_tokens for call in admissions)
        tokens = self.max_num_scheduled_tokens - (len(self.running) - len(prefilling))
        cap: int = max(1, max(tokens // 2, tokens - needed) // len(prefilling))
        return min(cap, configured) if configured else cap

    def _update_readiness(self, now: float) -> None:
        """Looks at the requests that could not run when last seen, and only those."""
        doubtful = (*self.deferred_waiting, *self._unready)
        adapters = self._adapters_in_use() if doubtful else frozenset()
        for request in doubtful:
            ready = self._can_run(request, adapters)
            if ready:
                self._unready.discard(request)
                if not self.core.call(request.request_id).ready:
                    self._cadence.arrived()
            self.core.set_ready(request.request_id, ready, now)

    def _adapters_in_use(self) -> Set[int]:
        """Numbers of the adapters that running requests hold in memory."""
        if not self.lora_config:
            return frozenset()
        return {request.lora_request.lora_int_id for request in self.running if request.lora_request}

    def _can_run(self, request: Request, adapters: Set[int]) -> bool:
        """Whether the base would admit this waiting request if it had a slot and memory, while these adapters are in
        use."""
        match request.status:
            case RequestStatus.WAITING_FOR_STREAMING_REQ:
                return False
            case RequestStatus.WAITING_FOR_REMOTE_KVS:
                return request.request_id in self.finished_recving_kv_req_ids
            case RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR:
                structured = request.structured_output_request
                grammar = structured.grammar if structured is not None else None
                return grammar is not None and not isinstance(grammar, Exception)
        if request.num_stale_output_tokens and not request.drop_stale_output:
            return False
        if self.lora_config and request.lora_request:
            return request.lora_request.lora_int_id in adapters or len(adapters) < self.lora_config.max_loras
        return True

    def _yields(self, holder: Request) -> bool:
        """Whether a request that holds KV cache lets the best of the others go first.

        Only while something runs, so that memory which it holds and the other one needs cannot stop both for good.
        """
        if not self.running or self._pause_state != PauseState.UNPAUSED:
            return False
        other = self.waiting.first()
        return other is not None and self.core.call(other.request_id).level < self.core.call(holder.request_id).level

    def _report(self, now: float, *, changed: bool = False) -> None:
        running, waiting = self.get_request_counts()
        if changed or self._reporter.due(now, busy=running + waiting > 0):
            self._reporter.send(
                now,
                running=running,
                waiting=waiting,
                tokens_in_flight=sum(request.num_tokens for request in self.running),
                kv_usage=self.kv_cache_manager.usage,
                malformed_contexts=self._contexts.malformed,
            )
