"""A workload like decoding: each step reads a few gigabytes of weights for a small batch, so it is bound by memory."""

import time
from typing import Any, Protocol

import numpy as np


class Decode(Protocol):
    """Steps that may overlap with what the caller does in between."""

    def step(self) -> None:
        """Starts one step."""

    def seconds(self) -> list[float]:
        """Times of all steps since the last call, in their order. Blocks until they have ended."""


class TorchDecode:
    """On a GPU.

    16 layers of 8192 x 8192 in bfloat16 (2 GiB) for 32 sequences, as one CUDA graph on a stream of its own.
    """

    LAYERS, WIDTH, BATCH = 16, 8192, 32

    def __init__(self, ordinal: int) -> None:
        import torch

        self._torch: Any = torch
        device = torch.device("cuda", ordinal)
        scale = self.WIDTH**-0.5  # keeps activations of size one
        weights = [
            torch.randn(self.WIDTH, self.WIDTH, device=device, dtype=torch.bfloat16) * scale for _ in range(self.LAYERS)
        ]
        start = torch.randn(self.BATCH, self.WIDTH, device=device, dtype=torch.bfloat16)
        self._stream = torch.cuda.Stream(device)
        self._stream.wait_stream(torch.cuda.current_stream(device))

        def forward() -> Any:
            activations = start
            for weight in weights:
                activations = activations @ weight
            return activations

        with torch.cuda.stream(self._stream):
            for _ in range(3):
                forward()
        self._stream.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, stream=self._stream):
            self._output = forward()
        self._events: list[tuple[Any, Any]] = []

    def step(self) -> None:
        """See `Decode`. Waits for the step before the last, as an engine that reads its tokens does."""
        if len(self._events) > 1:
            self._events[-2][1].synchronize()
        start, end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        with self._torch.cuda.stream(self._stream):
            start.record()
            self._graph.replay()
            end.record()
        self._events.append((start, end))

    def seconds(self) -> list[float]:
        """See `Decode`."""
        self._stream.synchronize()
        result = [start.elapsed_time(end) / 1000 for start, end in self._events]
        self._events.clear()
        return result


class NumpyDecode:
    """For dry runs: a small product on the CPU."""

    def __init__(self) -> None:
        self._weights = np.random.default_rng(0).standard_normal((128, 128))
        self._seconds: list[float] = []

    def step(self) -> None:
        """See `Decode`."""
        begin = time.perf_counter()
        self._weights @ self._weights
        self._seconds.append(time.perf_counter() - begin)

    def seconds(self) -> list[float]:
        """See `Decode`."""
        result = list(self._seconds)
        self._seconds.clear()
        return result
