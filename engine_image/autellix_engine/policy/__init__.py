"""The decision core: which calls run and which give way. Pure Python: no I/O, no clock, no randomness of its own."""

from autellix_engine.policy.cadence import Cadence
from autellix_engine.policy.calls import Call, CallEnd, CallState
from autellix_engine.policy.core import Core
from autellix_engine.policy.plan import Plan
from autellix_engine.policy.policies import POLICIES, Policy
from autellix_engine.policy.settings import InvalidSettings, SchedulingSettings
from autellix_engine.policy.snapshot import snapshot

__all__ = [
    "POLICIES",
    "Cadence",
    "Call",
    "CallEnd",
    "CallState",
    "Core",
    "InvalidSettings",
    "Plan",
    "Policy",
    "SchedulingSettings",
    "snapshot",
]
