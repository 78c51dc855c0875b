"""`python -m swapbench --out FOLDER`: see the package."""

import argparse
import importlib.metadata
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from autellix_kernels.compiler import Nvrtc
from autellix_kernels.errors import SwapError
from autellix_kernels.host import build
from autellix_kernels.host.device import HostDevice
from autellix_kernels.settings import SwapSettings
from swapbench.cases import DRY, FULL
from swapbench.decode import NumpyDecode, TorchDecode
from swapbench.report import Results, table, write
from swapbench.rig import Rig
from swapbench.run import run
from swapbench.verify import WrongBytes


def main(arguments: list[str] | None = None) -> int:
    """Runs, writes swap.json and swap.svg, prints the table; 1 when bytes were wrong or there is no usable GPU."""
    parser = argparse.ArgumentParser(prog="swapbench", description="Measures the swap engine beside its competitors.")
    parser.add_argument("--out", type=Path, required=True, help="folder for swap.json and swap.svg")
    parser.add_argument(
        "--dry-run", action="store_true", help="go through all of it on the CPU; the times mean nothing"
    )
    parser.add_argument("--gpu", type=int, default=0, help="number of the GPU (default 0)")
    parser.add_argument("--seed", type=int, default=1, help="of contents and block numbers (default 1)")
    options = parser.parse_args(arguments)
    try:
        results = dry_run(options.seed) if options.dry_run else on_gpu(options.gpu, options.seed)
    except (SwapError, WrongBytes) as error:
        print(f"swapbench: {error}", file=sys.stderr)
        return 1
    data, figure = write(results, options.out)
    print(f"{table(results)}\nwrote {data} and {figure}")
    return 0


def dry_run(seed: int) -> Results:
    """On the CPU stand-in."""
    device = HostDevice()
    with tempfile.TemporaryDirectory() as folder:
        kernels = build.load(device, build.build(Path(folder)))
    results = Results("CPU stand-in", True, {}, asdict(SwapSettings()))
    rig = Rig(device, kernels, DRY, seed)
    run(rig, NumpyDecode(), DRY, results, time.monotonic, print)
    rig.close()
    return results


def on_gpu(ordinal: int, seed: int) -> Results:
    """On a GPU."""
    from autellix_kernels.cuda_device import CudaDevice
    from autellix_kernels.start import compile_kernels

    device = CudaDevice(ordinal)
    nvrtc = Nvrtc.find()
    kernels = compile_kernels(device, nvrtc)
    versions = {"nvrtc": ".".join(map(str, nvrtc.version)), "torch": importlib.metadata.version("torch")}
    results = Results(device.info.name, False, versions, asdict(SwapSettings()))
    rig = Rig(device, kernels, FULL, seed)
    run(rig, TorchDecode(ordinal), FULL, results, time.monotonic, print)
    rig.close()
    device.close()
    return results


if __name__ == "__main__":
    sys.exit(main())
