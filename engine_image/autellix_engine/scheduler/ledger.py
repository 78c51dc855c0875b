"""What the scheduler notes about a request besides what the decision core keeps."""

from dataclasses import dataclass

from vllm.v1.request import Request, RequestStatus

from autellix_engine.policy import CallEnd
from autellix_engine.records.interface import RecordPublisher
from autellix_engine.swap.interface import CallTraffic
from autellix_wire.context import ProgramContext
from autellix_wire.records import CallRecord, Outcome, ProgramTotals


def outcome(status: RequestStatus) -> Outcome:
    """How a request ended, from its final status. Raises ValueError for one that has not ended."""
    if not RequestStatus.is_finished(status):
        raise ValueError(f"a request in status {status.name} has not ended")
    if status == RequestStatus.FINISHED_ABORTED:
        return "aborted"
    return "failed" if status == RequestStatus.FINISHED_ERROR else "finished"


@dataclass(slots=True)
class LedgerEntry:
    """One request. Several requests may belong to one call (``n`` > 1, several prompts): each gets a record."""

    call: str
    replica: str
    started: bool = False
    cached_tokens: int = 0
    """Prompt tokens that were found computed when it first ran."""
    recomputed_tokens: int = 0
    """Tokens computed again after preemptions."""
    computed_before: int = 0
    """Tokens that were computed when it was last preempted."""


class Ledger:
    """Tokens that preemption lost and caches saved, by request; makes the record of a request that ends."""

    def __init__(self) -> None:
        self._entries: dict[str, LedgerEntry] = {}

    def open(self, request: Request, context: ProgramContext | None) -> None:
        """A request arrived."""
        self._entries[request.request_id] = (
            LedgerEntry(context.call, context.replica) if context else LedgerEntry(request.request_id, "")
        )

    def preempted(self, request: Request) -> None:
        """The request is about to lose its KV cache."""
        self._entries[request.request_id].computed_before = request.num_computed_tokens

    def started(self, request: Request, found_computed: int) -> None:
        """The request got a slot, with so many tokens found in a cache."""
        entry = self._entries[request.request_id]
        if not entry.started:
            entry.started, entry.cached_tokens = True, found_computed
        elif entry.computed_before:
            entry.recomputed_tokens += max(0, entry.computed_before - found_computed)
            entry.computed_before = 0

    def close(self, request: Request, end: CallEnd, traffic: CallTraffic, publisher: RecordPublisher) -> CallRecord:
        """The record of a request that ended."""
        entry = self._entries.pop(request.request_id)
        return CallRecord(
            seq=publisher.next_seq(),
            engine=publisher.engine,
            incarnation=publisher.incarnation,
            program=end.program,
            call=entry.call,
            thread=end.thread,
            replica=entry.replica,
            outcome=outcome(request.status),
            service_ms=end.service_ms,
            wait_ms=end.wait_ms,
            preemptions=end.preemptions,
            promotions=end.promotions,
            level=end.level,
            swapped_bytes=traffic.bytes_moved,
            prompt_tokens=request.num_prompt_tokens,
            cached_tokens=entry.cached_tokens,
            host_tokens=traffic.host_tokens,
            recomputed_tokens=entry.recomputed_tokens,
            generated_tokens=request.num_output_tokens,
            path_ms=end.path_ms,
            program_wait_ms=end.program_wait_ms,
            totals=ProgramTotals(
                service_ms=end.own_service_ms,
                calls=end.own_calls,
                prompt_tokens=end.own_prompt_tokens,
                generated_tokens=end.own_generated_tokens,
            ),
        )
