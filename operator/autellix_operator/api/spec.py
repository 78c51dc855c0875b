"""The spec of an AutellixCluster as typed, immutable models.

The CRD is the API: admission checks all of this first. The operator checks again, for a resource may have been stored
before a rule was added, and takes its defaults from the same place in the spec. A test holds both sides together:
names, types, bounds, enumerations and defaults.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

from pydantic import Field, ValidationError, model_validator

from autellix_operator.api.base import InvalidSpec, ObjectName, SpecModel, refuse_doubles, size_in_bytes
from autellix_operator.api.controller import Controller, Routing
from autellix_operator.api.engine import Engine, Model
from autellix_operator.api.memory import needed_bytes
from autellix_operator.api.process_table import ProcessTable
from autellix_operator.api.scheduling import Scheduling
from autellix_operator.api.surroundings import Monitoring, NetworkPolicy, ObjectRef

GROUP: Final = "autellix.dev"
VERSION: Final = "v1alpha1"
KIND: Final = "AutellixCluster"
PLURAL: Final = "autellixclusters"

#: Names of pods and of their revisions are made from the cluster's name and may have 63 characters.
MAX_NAME_LENGTH: Final = 40

#: Share of a GPU's memory that vLLM takes where the spec says nothing, in percent.
_MEMORY_SHARE_PERCENT: Final = 90


class Spec(SpecModel):
    """What is wanted of an AutellixCluster."""

    model: Model
    engine: Engine = Engine()
    scheduling: Scheduling = Scheduling()
    routing: Routing = Routing()
    controller: Controller = Controller()
    process_table: ProcessTable = ProcessTable()
    image_pull_secrets: Annotated[tuple[ObjectRef, ...], Field(max_length=16, strict=False)] = ()
    priority_class_name: ObjectName | None = None
    monitoring: Monitoring = Monitoring()
    network_policy: NetworkPolicy = NetworkPolicy()

    @model_validator(mode="after")
    def _engines_remember_what_controllers_do(self) -> Self:
        idle, session = self.scheduling.program_idle_seconds, self.controller.session_timeout_seconds
        if idle is not None and idle < session:
            raise ValueError(
                f"scheduling.programIdleSeconds must not be less than controller.sessionTimeoutSeconds, {session}, "
                f"not {idle}"
            )
        return self

    @model_validator(mode="after")
    def _name_each_secret_once(self) -> Self:
        refuse_doubles([each.name for each in self.image_pull_secrets], "imagePullSecrets")
        return self

    @model_validator(mode="after")
    def _weights_fit(self) -> Self:
        gpu, weights = self.engine.gpu, self.model.weights_size
        if weights is None or gpu is None or gpu.memory is None:
            return self
        share = self.engine.gpu_memory_utilization_percent or _MEMORY_SHARE_PERCENT
        if size_in_bytes(weights) * 100 >= size_in_bytes(gpu.memory) * gpu.count * share:
            raise ValueError(
                f"model.weightsSize, {weights}, leaves no room for KV cache in {share} percent of {gpu.count} times "
                f"{gpu.memory}, the memory of engine.gpu"
            )
        return self

    @model_validator(mode="after")
    def _memory_is_enough(self) -> Self:
        memory, needed = self.engine.memory, needed_bytes(self.engine, self.model)
        if memory is not None and size_in_bytes(memory) < needed:
            raise ValueError(
                f"engine.memory, {memory}, must be at least {-(-needed >> 20)}Mi: 2Gi for the server and 1Gi for each "
                "device, the shared memory, swap.size and, without GPUs, model.weightsSize"
            )
        return self


def parse_spec(resource: Mapping[str, Any]) -> Spec:
    """Reads and checks the spec of a resource. Raises InvalidSpec, naming the first field that is wrong."""
    name = resource["metadata"]["name"]
    if len(name) > MAX_NAME_LENGTH or not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name):
        raise InvalidSpec(
            f"metadata.name: must start with a letter, hold only lower-case letters, digits and '-', and have at most "
            f"{MAX_NAME_LENGTH} characters"
        )
    try:
        return Spec.model_validate(resource.get("spec", {}))
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(["spec", *(str(part) for part in first["loc"])])
        raise InvalidSpec(f"{path}: {first['msg'].removeprefix('Value error, ')}") from error
