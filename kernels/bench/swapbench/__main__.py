"""`python -m swapbench --out FOLDER`: see the package."""

import argparse
import importlib.metadata
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path

from autellix_kernels.compiler import Nvrtc
from autellix_kernels.errors import SwapError
from autellix_kernels.host import build
from autellix_kernels.host.device import HostDevice
from autellix_kernels.settings import SwapSettings
from swapbench.cases import DRY, FULL, Plan
from swapbench.decode import NumpyDecode, TorchDecode
from swapbench.keeper import Keeper
from swapbench.report import Results, table
from swapbench.rig import Rig
from swapbench.run import GaveUp, Reporting, run
from swapbench.verify import WrongBytes

LIMIT_SECONDS = 480
RESERVED_SECONDS = 60
"""Of the limit: for the cell that runs when the budget is used up, and for writing."""


def main(arguments: list[str] | None = None) -> int:
    """Runs, writes swap.json and swap.svg, prints the table.

    Returns:
        0 after a whole run, 1 when bytes were wrong, too much broke or there is no usable GPU. A run that is stuck ends
        the process with 3.
    """
    started = time.monotonic()
    parser = argparse.ArgumentParser(prog="swapbench", description="Measures the swap engine beside its competitors.")
    parser.add_argument("--out", type=Path, required=True, help="folder for swap.json and swap.svg")
    parser.add_argument(
        "--dry-run", action="store_true", help="go through all of it on the CPU; the times mean nothing"
    )
    parser.add_argument("--gpu", type=int, default=0, help="number of the GPU (default 0)")
    parser.add_argument("--seed", type=int, default=1, help="of contents and block numbers (default 1)")
    parser.add_argument(
        "--limit",
        type=int,
        default=LIMIT_SECONDS,
        help=f"seconds that all may take, from 120 (default {LIMIT_SECONDS})",
    )
    options = parser.parse_args(arguments)
    if options.limit < 2 * RESERVED_SECONDS:
        parser.error(f"--limit: at least {2 * RESERVED_SECONDS} seconds, not {options.limit}")
    results = Results("", options.dry_run, {}, asdict(SwapSettings()))
    plan = DRY if options.dry_run else replace(FULL, budget_seconds=options.limit - RESERVED_SECONDS)
    with Keeper(results, options.out, options.limit) as keeper:
        reporting = Reporting(lambda: time.monotonic() - started, _say, keeper.save)
        try:
            if options.dry_run:
                dry_run(plan, options.seed, results, reporting)
            else:
                on_gpu(options.gpu, plan, options.seed, results, reporting)
        except (SwapError, WrongBytes, GaveUp) as error:
            print(f"swapbench: {error}", file=sys.stderr)
            if not isinstance(error, GaveUp):  # its last line is there
                results.errors.append(str(error))
        data, figure = keeper.save()
    _say(f"{table(results)}\nwrote {data} and {figure}")
    return 0 if results.complete else 1


def dry_run(plan: Plan, seed: int, results: Results, reporting: Reporting) -> None:
    """On the CPU stand-in."""
    results.device = "CPU stand-in"
    device = HostDevice()
    with tempfile.TemporaryDirectory() as folder:
        kernels = build.load(device, build.build(Path(folder)))
    rig = Rig(device, kernels, plan, seed)
    run(rig, NumpyDecode, plan, results, reporting)
    rig.close()


def on_gpu(ordinal: int, plan: Plan, seed: int, results: Results, reporting: Reporting) -> None:
    """On a GPU."""
    from autellix_kernels.cuda_device import CudaDevice
    from autellix_kernels.start import compile_kernels

    device = CudaDevice(ordinal)
    results.device = device.info.name
    nvrtc = Nvrtc.find()
    kernels = compile_kernels(device, nvrtc)
    results.versions |= {
        "nvrtc": ".".join(map(str, nvrtc.version)),
        "torch": _version("torch"),
        "numpy": _version("numpy"),
    }
    _say(f"{reporting.clock():4.0f} s  {results.device}, {results.versions}: kernels compiled")
    rig = Rig(device, kernels, plan, seed)
    run(rig, lambda: TorchDecode(ordinal), plan, results, reporting)
    rig.close()
    device.close()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def _say(line: str) -> None:
    """At once: whoever reads a pipe wants to know how far it is."""
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
