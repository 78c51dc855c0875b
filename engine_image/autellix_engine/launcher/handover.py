"""What the launcher hands over to the processes that vLLM starts: names of variables, and the scheduling settings.

It stands apart from the launcher so that those processes import nothing of it.
"""

from collections.abc import Mapping
from typing import Final

from autellix_engine.policy.settings import SchedulingSettings

#: Given from outside (see "Engine container" in docs/architecture.md).
ENGINE_KEY: Final = "AUTELLIX_ENGINE_KEY"
ENGINE_KEY_FILE: Final = "AUTELLIX_ENGINE_KEY_FILE"
ENGINE_NAME: Final = "AUTELLIX_ENGINE_NAME"
DRAIN_SECONDS: Final = "AUTELLIX_DRAIN_SECONDS"
TERMINATION_LOG: Final = "AUTELLIX_TERMINATION_LOG"
#: Set by the launcher: path of a socket. Beside it lies another one, see ``reports_socket``.
RECORDS_SOCKET: Final = "AUTELLIX_RECORDS_SOCKET"
OPEN_METRICS: Final = "AUTELLIX_ENGINE_OPEN_METRICS"

_CONFIG_KEY: Final = "autellix"


def reports_socket(records_socket: str) -> str:
    """Path of the socket for load reports, which have one of their own so that records never hold up the newest."""
    return records_socket + ".load"


def additional_config(settings: SchedulingSettings) -> dict[str, object]:
    """The settings as vLLM's ``--additional-config``, the one argument that it carries to a scheduler class as is."""
    return {_CONFIG_KEY: settings.model_dump(mode="json")}


def scheduling_settings(additional_config: Mapping[str, object]) -> SchedulingSettings:
    """Reads the settings back; the defaults if there are none. Raises InvalidSettings."""
    given = additional_config.get(_CONFIG_KEY, {})
    return SchedulingSettings.parse(given if isinstance(given, str | Mapping) else {_CONFIG_KEY: given})
