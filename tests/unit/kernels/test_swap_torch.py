"""The fall-back by torch operations does what the kernels do."""

import random
from pathlib import Path

import pytest
import torch

from autellix_kernels.host.device import HostDevice
from autellix_kernels.mover import Mover
from autellix_kernels.torch_mover import TorchMover
from support.swap_model import Traffic


def torch_mover(traffic: Traffic) -> Mover:
    def tensor_at(address: int, size: int) -> torch.Tensor:
        return torch.from_numpy(traffic.device.view(address, size))

    return TorchMover(traffic.cache.layout, tensor_at, traffic.device.submit)


@pytest.mark.parametrize("seed", range(10))
def test_random_traffic_by_torch_operations_leaves_the_same_bytes(host_library: Path, seed: int) -> None:
    traffic = Traffic(host_library, seed, HostDevice(random.Random(seed)), mover_of=torch_mover)
    traffic.run(steps=30)
    traffic.check()
    assert traffic.engine.stats().mover == "torch"
