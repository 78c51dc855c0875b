"""Everything that this package raises on purpose."""


class SwapError(Exception):
    """Base of all errors of this package."""


class SettingError(SwapError):
    """A setting that cannot work; the text names the setting and what is allowed."""


class LayoutError(SwapError):
    """Blocks, slots or tensors that do not fit together. Raised before anything was put on a stream."""


class CompileError(SwapError):
    """NVRTC is missing or refuses the source.

    Attributes:
        log: what the compiler said, empty where it was never reached.
    """

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(f"{message}\n{log}".rstrip())
        self.log = log


class PinnedMemoryError(SwapError):
    """The declared host memory cannot be had; the text names the setting and what limits it."""


class DriverError(SwapError):
    """A call of the CUDA driver failed.

    Attributes:
        call: name of the driver's function, or "load" where there is no driver.
        code: its CUresult, 0 where there is no driver.
    """

    def __init__(self, call: str, code: int, text: str) -> None:
        super().__init__(f"{call}: {text}" if code == 0 else f"{call} returned {code} ({text})")
        self.call = call
        self.code = code
