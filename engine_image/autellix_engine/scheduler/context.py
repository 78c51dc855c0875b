"""Reads the program context of a request."""

from collections import Counter
from typing import Final

from vllm.v1.request import Request

from autellix_engine.scheduler.log import logger
from autellix_wire.context import InvalidContext, ProgramContext


class ContextReader:
    """Reads contexts and keeps count of malformed ones.

    A malformed context is the fault of whoever sent it, never of the engine: the request is served as one without a
    context, and each kind of fault is logged once.
    """

    def __init__(self) -> None:
        self.malformed: Final[Counter[str]] = Counter()
        """By kind of fault."""

    def read(self, request: Request) -> ProgramContext | None:
        """The context that the request carries; None if there is none, or none that can be understood."""
        parameters = request.sampling_params
        if parameters is None or not parameters.extra_args:  # pooling requests carry no context
            return None
        try:
            return ProgramContext.from_xargs(parameters.extra_args)
        except InvalidContext as error:
            kind = str(error).partition(":")[0]  # the field; what was in it may be anything
            self.malformed[kind] += 1
            if self.malformed[kind] == 1:
                logger.warning("Request %s has a malformed program context: %s", request.request_id, error)
            return None
