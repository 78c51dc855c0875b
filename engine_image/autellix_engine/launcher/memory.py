"""How much host memory KV swapping gets, decided before anything is started."""

from autellix_engine.launcher.arguments import InvalidArguments
from autellix_engine.swap.settings import SIZE_SETTING, InvalidSwapSettings, SwapSettings
from autellix_kernels.errors import PinnedMemoryError, SettingError
from autellix_kernels.pool import MemoryFacts, check_fits


def resolve_swap(text: str, limit: int, facts: MemoryFacts) -> SwapSettings:
    """The settings with their size in bytes, for a container that may use ``limit`` bytes in all.

    Raises InvalidArguments, also for a pool that does not fit what is free now; the engine asks again when it takes the
    memory, once the model has taken its own.
    """
    try:
        settings = SwapSettings.parse(text)
        settings.engine_settings()
        size = settings.size_bytes(limit)
        check_fits(size, facts, SIZE_SETTING)
    except (InvalidSwapSettings, PinnedMemoryError) as error:
        raise InvalidArguments(f"--{error}") from error
    except SettingError as error:
        raise InvalidArguments(f"--swap.{error}") from error
    return settings.model_copy(update={"size": size})
