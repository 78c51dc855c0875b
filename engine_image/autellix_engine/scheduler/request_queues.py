"""vLLM's two waiting queues as views of the one order that the decision core keeps."""

from collections.abc import Callable, Iterable, Iterator

from vllm.v1.core.sched.request_queue import RequestQueue
from vllm.v1.request import Request

from autellix_engine.policy import Core


class CoreQueue(RequestQueue):  # type: ignore[misc]  # vLLM is untyped to us
    """The waiting requests that belong to one of vLLM's queues, in the order of the core.

    vLLM pops a request while it tries to admit it, and either lets it run or prepends it again (here or to the other
    queue). What was popped and has not come back is in ``taken``.
    """

    def __init__(self, core: Core, taken: dict[str, Request]) -> None:
        self._core = core
        self._taken = taken
        self._requests: dict[str, Request] = {}

    def add_request(self, request: Request) -> None:
        """Takes the request in; its place is where the core has it."""
        key = request.request_id
        self._requests[key] = request
        self._taken.pop(key, None)
        self._core.put_back(key)

    def prepend_request(self, request: Request) -> None:
        """The same: there is no way around the order of the core."""
        self.add_request(request)

    def prepend_requests(self, requests: Iterable[Request]) -> None:
        for request in requests:
            self.add_request(request)

    def peek_request(self) -> Request:
        """The request to serve next. Raises IndexError if there is none."""
        request = self.first()
        if request is None:
            raise IndexError("no request is waiting")
        return request

    def pop_request(self) -> Request:
        """Takes out the request to serve next. Raises IndexError if there is none."""
        request = self.peek_request()
        del self._requests[request.request_id]
        self._core.take(request.request_id)
        self._taken[request.request_id] = request
        return request

    def remove_request(self, request: Request) -> None:
        self._requests.pop(request.request_id, None)

    def remove_requests(self, requests: Iterable[Request]) -> None:
        """vLLM removes from both queues: requests that are not in this one are normal."""
        for request in requests:
            self.remove_request(request)

    def first(self) -> Request | None:
        """The request to serve next, if there is one."""
        return next(iter(self), None) if self._requests else None

    def __bool__(self) -> bool:
        """Whether there is one to serve now."""
        return self.first() is not None

    def __len__(self) -> int:
        """Number of waiting requests, those included that cannot be served now."""
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        for call in self._core.waiting():
            request = self._requests.get(call.key)
            if request is not None:
                yield request


class WaitingQueue(CoreQueue):
    """Requests that hold no KV cache. Those that were preempted for this very step stay out of it."""

    def __init__(self, core: Core, taken: dict[str, Request]) -> None:
        super().__init__(core, taken)
        self.withheld: frozenset[str] = frozenset()

    def first(self) -> Request | None:
        if not self._requests:
            return None
        first = self._core.first_waiting()
        if first is not None and first.key in self._requests and first.key not in self.withheld:
            return self._requests[first.key]  # nearly always, and asked several times for each admission
        return next((request for request in self if request.request_id not in self.withheld), None)


class KvHoldingQueue(CoreQueue):
    """Requests that hold KV cache while they wait: it is being loaded, was loaded, or belongs to a session.

    vLLM drains this queue before the other whatever is in it. A request in it yields while ``yields_to`` says that
    what stands first in the other queue comes before it.
    """

    def __init__(
        self,
        core: Core,
        taken: dict[str, Request],
        yields_to: Callable[[Request], bool],
    ) -> None:
        super().__init__(core, taken)
        self._yields_to = yields_to

    def first(self) -> Request | None:
        if not self._requests:  # it is small: only loads in flight and open sessions
            return None
        first = min(self._requests.values(), key=self._place)
        return None if self._yields_to(first) else first

    def __iter__(self) -> Iterator[Request]:
        return iter(sorted(self._requests.values(), key=self._place))

    def _place(self, request: Request) -> tuple[int, int]:
        call = self._core.call(request.request_id)
        return call.level, call.order
