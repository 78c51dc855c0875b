"""The side of the transfers: turns vLLM's jobs into transfers of the swap engine.

Rules for the order, enforced here on top of those of `SwapEngine`:

1. A store is ordered after all that the model was given before it: it copies finished blocks.
2. vLLM gives a block that a store still reads to somebody else only after `wait` for that store. The model is then held
   back until the block was read (on a GPU in stream order, nobody blocks); a load into it is held back by the engine.
3. A load counts as finished, so that vLLM lets the call run, only when its last byte has arrived.
4. A load is ordered after all that the model was given before it: who had the block may still be computing.
"""

import logging
from collections import Counter
from typing import Final

import numpy as np
import numpy.typing as npt
from vllm.v1.kv_offload.base import GPULoadStoreSpec, LoadStoreSpec, OffloadingWorker, TransferResult

from autellix_engine.swap.devices import OpenEngine
from autellix_kernels.errors import SwapError
from autellix_kernels.plan import Path
from autellix_kernels.transfers import Transfer

logger: Final = logging.getLogger("vllm.autellix.swap")


class SlotsSpec(LoadStoreSpec):  # type: ignore[misc]  # vLLM is untyped to us
    """Slots of the host pool, in the order of the blocks on the other side."""

    def __init__(self, slots: list[int]) -> None:
        self.slots: npt.NDArray[np.int32] = np.array(slots, dtype=np.int32)


class SwapWorker(OffloadingWorker):  # type: ignore[misc]
    """A job that fails is reported as failed and logged; it never ends the engine. All calls come from one thread."""

    def __init__(self, opened: OpenEngine) -> None:
        self._opened = opened
        self._engine = opened.engine
        self._jobs: dict[int, tuple[int, Transfer]] = {}  # by the transfer's number
        self._transfer_of: dict[int, Transfer] = {}  # by job
        self._failed: list[int] = []
        self._said = ""
        self._paths: Counter[tuple[str, str]] = Counter()
        self._path_names = {
            Path.BATCH: "batch",
            Path.GATHER: "gather" if opened.engine.stats().mover == "nvrtc" else "gather_by_torch",
        }

    def submit_store(self, job_id: int, src_spec: GPULoadStoreSpec, dst_spec: LoadStoreSpec) -> bool:
        """See `OffloadingWorker`."""
        return self._submit(job_id, dst_spec, src_spec, store=True)

    def submit_load(self, job_id: int, src_spec: LoadStoreSpec, dst_spec: GPULoadStoreSpec) -> bool:
        """See `OffloadingWorker`."""
        return self._submit(job_id, src_spec, dst_spec, store=False)

    def get_finished(self) -> list[TransferResult]:
        """Jobs that have ended since the last call, well or not."""
        results = [TransferResult(job, False) for job in self._failed]
        self._failed.clear()
        try:
            ended = self._engine.finished() if self._jobs else []
        except SwapError as error:
            self._say_why(f"{len(self._jobs)} transfers of KV cache are lost", error)
            results += [TransferResult(job, False) for job, _ in self._jobs.values()]
            self._jobs.clear()
            self._transfer_of.clear()
            return results
        for done in ended:
            job, transfer = self._jobs.pop(done.transfer.number)
            del self._transfer_of[job]
            self._paths[transfer.direction.value, self._path_names[transfer.path]] += 1
            results.append(TransferResult(job, True, transfer.size, done.seconds))
        return results

    def wait(self, job_ids: set[int]) -> None:
        """The model may use the blocks of these jobs for something else once this has returned (rule 2)."""
        stream = self._opened.model.current()
        for job in job_ids:
            if transfer := self._transfer_of.get(job):
                self._engine.hold(stream, transfer)
        self._opened.model.settle()

    def take_paths(self) -> Counter[tuple[str, str]]:
        """Finished transfers by direction and path since the last call."""
        paths, self._paths = self._paths, Counter()
        return paths

    def shutdown(self) -> None:
        """Waits for what is in flight and gives everything back."""
        self._opened.close()

    def _say_why(self, what: str, error: SwapError) -> None:
        """An unusable engine gives the same answer to everything: that is said once."""
        why = str(error)
        if why != self._said:
            logger.error("Swapping: %s and will be computed again: %s", what, why)
            self._said = why

    def _submit(self, job: int, slots: LoadStoreSpec, blocks: GPULoadStoreSpec, *, store: bool) -> bool:
        if not isinstance(slots, SlotsSpec):
            raise TypeError(f"expected slots of the host pool, not {type(slots).__name__}")
        stream = self._opened.model.current()
        try:
            if store:
                transfer = self._engine.store(blocks.block_ids, slots.slots, after=stream)
            else:
                transfer = self._engine.load(slots.slots, blocks.block_ids, after=stream)
        except SwapError as error:
            self._say_why(f"a {'store' if store else 'load'} of {len(slots.slots)} blocks failed", error)
            self._failed.append(job)
            return True
        self._jobs[transfer.number] = job, transfer
        self._transfer_of[job] = transfer
        return True
