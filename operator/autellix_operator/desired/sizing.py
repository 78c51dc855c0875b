"""Memory of engines as Kubernetes' quantities. Pure functions."""

from autellix_operator.api.engine import Engine
from autellix_operator.api.memory import needed_bytes, shared_memory_bytes
from autellix_operator.api.spec import Spec


def shared_memory(engine: Engine) -> str:
    """Most shared memory of an engine."""
    return engine.shared_memory_size or _quantity(shared_memory_bytes(engine))


def requested_memory(spec: Spec) -> str:
    """Memory that an engine's container is promised."""
    return spec.engine.memory or _quantity(needed_bytes(spec.engine, spec.model))


def _quantity(number: int) -> str:
    return f"{number >> 20}Mi"
