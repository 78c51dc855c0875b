"""The logger of the scheduler. It stands below vLLM's, the only one with a handler in the engine's processes."""

import logging
from typing import Final

logger: Final = logging.getLogger("vllm.autellix.scheduler")
