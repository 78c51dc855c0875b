"""The scheduler class that vLLM loads: ``--scheduler-cls autellix_engine.scheduler.ProgramScheduler``."""

from autellix_engine.scheduler.program_scheduler import ProgramScheduler

__all__ = ["ProgramScheduler"]
