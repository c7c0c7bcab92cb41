"""Runs a script of the harness, which prepares and compiles and then waits to be told to time.

    python gated_harness.py FOLDER SCRIPT READ_FD WRITE_FD ARGUMENTS...

Nothing of the harness is replaced: its own function times, as often as it is told to.
"""

import gc
import importlib
import json
import os
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

NUM_ALONE, NUM_PROFILED = 10, 2
NUM_WARM = 4
"""Steps until a compiled one replays what it captured."""

LISTED, NAME_CHARACTERS = 0.01, 120
"""Share of a step's kernels from which on one is listed."""
OTHERS = "others"

Kernel = tuple[str, float, float]
"""Name; calls and seconds in a step."""
Step = Callable[..., Any]
"""Of a model and its inputs, as the harness calls it."""


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
        message, asked = None, arguments[1:]

        def say(what: dict[str, Any]) -> None:
            print(json.dumps(what), file=says, flush=True)

        def timed() -> dict[str, Any]:
            stem = common.output_filename[:-4]
            raw = f"{stem}-raw_timings-{common.current_name}-{common.current_device}.npy"
            uncompiled, compiled = np.load(raw).T.tolist()
            return {"uncompiled": uncompiled, "compiled": compiled} | alone(common, *asked)

        say({"ready": torch.__version__})
        ours: Step | None = None
        while command := told.readline().strip():
            if command == "time":
                message = time(*arguments, **named)
                say(timed())
            elif command == "prepare ours":
                asked[0].__self__.optimizer_zero_grad(asked[1])
                ours = warm(our_way(*asked), *asked[1:])
                say({"ready": torch.__version__})
            elif command == "take apart" and ours is not None:
                say(apart(common, ours, *asked))
        return message

    return speedup_experiment


def alone(common: Any, step: Any, model: Any, inputs: Any) -> dict[str, list[Any]]:
    """The same steps by the same clock, but each kind by itself: the harness has an uncompiled one
    before every compiled one, so that each begins with what the other left in the caches. And what
    their kernels take."""
    import torch

    def uncompiled() -> float:
        with torch.compiler.set_stance("force_eager"):
            return _timed(common, model, step, inputs)

    found: dict[str, list[Any]] = {}
    replayed: Step = torch._dynamo.run(step)
    kinds: dict[str, Callable[[], float]] = {
        "uncompiled": uncompiled,
        "compiled": lambda: _timed(common, model, replayed, inputs),
    }
    for name, once in kinds.items():
        found[f"{name}_alone"] = [once() for _ in range(NUM_ALONE)]
        if torch.cuda.is_available():
            kernels = [_kernels(once) for _ in range(NUM_PROFILED)]
            found[f"{name}_busy"] = [sum(seconds for _, _, seconds in one) for one in kernels]
            if name == "compiled":
                found["compiled_kernels"] = listed(kernels[-1])
    return found


def listed(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Those that take long, with as much of the name as tells them apart, and all others as one."""
    enough = LISTED * sum(seconds for _, _, seconds in kernels)
    short = [one for one in kernels if one[2] < enough]
    others = (OTHERS, sum(calls for _, calls, _ in short), sum(seconds for _, _, seconds in short))
    long = [(name[:NAME_CHARACTERS], calls, seconds) for name, calls, seconds in kernels
            if seconds >= enough]  # fmt: skip
    return [*long, others]


def our_way(step: Any, model: Any, inputs: Any) -> Step:
    """The harness's step with the same model, loss and optimizer, in Breakeven's order: the inputs
    are not copied, every optimizer is compiled, and gradients are cleared at the end of a step,
    while the device still works, instead of before the next one."""
    import torch

    runner = step.__self__

    def called(inputs: Any) -> Any:
        return model(**inputs) if isinstance(inputs, Mapping) else model(*inputs)

    def answer(inputs: Any) -> Any:
        return called(inputs)

    def iterate(inputs: Any) -> Any:
        with runner.autocast(**runner.autocast_arg):
            predicted = called(inputs)
            if not isinstance(inputs, Mapping) and isinstance(predicted, tuple):
                predicted = predicted[0]
            loss = runner.compute_loss(predicted)
        runner.grad_scaler.scale(loss).backward()
        if runner.optimizer is not None:
            # What the harness puts in its place for some is not compiled.
            type(runner.optimizer).step(runner.optimizer)
        runner.optimizer_zero_grad(model)
        return loss.detach()

    if step.__name__ == "forward_and_backward_pass":
        trained = torch.compile(iterate)
        return lambda model, inputs, collect_outputs: trained(inputs)
    answered = torch.compile(answer)

    def infer(model: Any, inputs: Any, collect_outputs: bool) -> Any:
        with torch.no_grad(), runner.autocast(**runner.autocast_arg):
            return answered(inputs)

    return infer


def warm(step: Step, model: Any, inputs: Any) -> Step:
    for _ in range(NUM_WARM):
        step(model, inputs, collect_outputs=False)
    return step


def apart(common: Any, ours: Step, step: Any, model: Any, inputs: Any) -> dict[str, Any]:
    """By the harness's clock: its own compiled step, the same with gradients cleared before the
    clock starts, without Python's garbage collector, and the step in our way; and where the device
    stands still in each."""
    import torch

    replayed: Step = torch._dynamo.run(step)

    def harness() -> float:
        return _timed(common, model, replayed, inputs)

    def cleared() -> float:
        step.__self__.optimizer_zero_grad(model)
        return harness()

    def uncollected() -> float:
        gc.disable()
        try:
            return harness()
        finally:
            gc.enable()

    kinds: dict[str, Callable[[], float]] = {
        "harness": harness,
        "cleared": cleared,
        "uncollected": uncollected,
        "our_way": lambda: _timed(common, model, ours, inputs),
    }
    if step.__name__ != "forward_and_backward_pass":
        del kinds["cleared"]
    found: dict[str, Any] = {}
    for name, once in kinds.items():
        once()  # what the kind before left behind is not its own
        found[name] = {"seconds": [once() for _ in range(NUM_ALONE)]}
        if torch.cuda.is_available():
            found[name]["idle"] = [_idle(once) for _ in range(NUM_PROFILED)]
    return found


def _idle(once: Callable[[], float]) -> dict[str, float]:
    """Seconds in which the device stands still: until it begins, in between, and after its end."""
    from torch.profiler import ProfilerActivity, profile

    profiler: Any
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        seconds = once()
    events = profiler.profiler.kineto_results.events()
    work = sorted(
        (event.start_ns(), event.start_ns() + event.duration_ns())
        for event in events
        if event.device_type().name == "CUDA" and event.duration_ns() > 0
    )
    first, last, between = work[0][0], work[0][1], 0
    for start, end in work[1:]:
        between += max(0, start - last)
        last = max(last, end)
    waits = [
        event.start_ns() + event.duration_ns()
        for event in events
        if event.name() == "cudaDeviceSynchronize"
    ]
    over = min((end for end in waits if end >= last), default=last)
    return {
        "before": seconds - (over - first) / 1e9,
        "between": between / 1e9,
        "after": (over - last) / 1e9,
    }


def _kernels(once: Callable[[], float]) -> list[Kernel]:
    """The device's kernels and copies in a step."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        once()
    averages: Any = profiler.key_averages()
    return [
        (event.key, event.count, event.self_device_time_total / 1e6)
        for event in averages
        if event.self_device_time_total > 0
    ]


def _timed(common: Any, model: Any, step: Any, inputs: Any) -> float:
    # What it answers must not live until the next: replayed graphs write it anew.
    return float(common.timed(model, step, inputs, return_result=True)[0])


if __name__ == "__main__":
    main()
