"""Runs a script of the harness, which prepares and compiles and then waits to be told to time.

    python gated_harness.py FOLDER SCRIPT READ_FD WRITE_FD ARGUMENTS...

Nothing of the harness is replaced: its own function times, as often as it is told to.
"""

import importlib
import json
import os
import runpy
import sys
from collections.abc import Callable
from typing import Any

NUM_ALONE, NUM_PROFILED = 10, 2


def main() -> None:
    folder, script, read_fd, write_fd, *arguments = sys.argv[1:]
    told, says = os.fdopen(int(read_fd)), os.fdopen(int(write_fd), "w")
    sys.path.insert(0, folder)
    os.chdir(folder)
    common: Any = importlib.import_module("common")

    common.speedup_experiment = gated(common, common.speedup_experiment, told, says)
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")


def gated(common: Any, time: Callable[..., Any], told: Any, says: Any) -> Callable[..., Any]:
    import numpy as np
    import torch

    def speedup_experiment(*arguments: Any, **named: Any) -> Any:
        # Others need the memory while this one waits.
        torch.cuda.empty_cache()
        message = None
        print(json.dumps({"ready": torch.__version__}), file=says, flush=True)
        while told.readline().strip() == "time":
            message = time(*arguments, **named)
            stem = common.output_filename[:-4]
            raw = f"{stem}-raw_timings-{common.current_name}-{common.current_device}.npy"
            uncompiled, compiled = np.load(raw).T.tolist()
            times = {"uncompiled": uncompiled, "compiled": compiled}
            print(json.dumps(times | alone(common, *arguments[1:])), file=says, flush=True)
        return message

    return speedup_experiment


def alone(common: Any, step: Any, model: Any, inputs: Any) -> dict[str, list[float]]:
    """The same steps by the same clock, but each kind by itself: the harness has an uncompiled one
    before every compiled one, so that each begins with what the other left in the caches. And what
    their kernels take."""
    import torch

    def uncompiled() -> float:
        with torch.compiler.set_stance("force_eager"):
            return _timed(common, model, step, inputs)

    found = {}
    replayed = torch._dynamo.run(step)
    kinds: dict[str, Callable[[], float]] = {
        "uncompiled": uncompiled,
        "compiled": lambda: _timed(common, model, replayed, inputs),
    }
    for name, once in kinds.items():
        found[f"{name}_alone"] = [once() for _ in range(NUM_ALONE)]
        if torch.cuda.is_available():
            found[f"{name}_busy"] = [_busy(once) for _ in range(NUM_PROFILED)]
    return found


def _busy(once: Callable[[], float]) -> float:
    """Seconds of the device's kernels and copies in a step."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        once()
    averages: Any = profiler.key_averages()
    return float(sum(event.self_device_time_total for event in averages)) / 1e6


def _timed(common: Any, model: Any, step: Any, inputs: Any) -> float:
    # What it answers must not live until the next: replayed graphs write it anew.
    return float(common.timed(model, step, inputs, return_result=True)[0])


if __name__ == "__main__":
    main()
