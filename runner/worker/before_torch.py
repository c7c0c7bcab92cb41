"""A run before torch is imported: the settings of its process, and the check of its experiment."""

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from importlib import import_module

from breakeven.runner.errors import Refused, RunnerError
from breakeven.runner.machine.cpus import cpu_allowance
from breakeven.runner.machine.run_variables import OWN_PYTHON_VARIABLE, protect_compiler_folder
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.specs.experiment import RunSpec
from breakeven.runner.worker.data.hub_access import go_offline_without_hub

CHECK_COMMAND = ("-m", "breakeven.runner.checks.refused_experiments")
CUDA_VISIBLE = "CUDA_VISIBLE_DEVICES"
USUAL_VARIABLES = {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
"""Variables of every run, unless its experiment sets others."""


def only_own_packages() -> None:
    """Stops a run of another Python from importing Breakeven's own packages: it starts in their
    folder, which Python 3.10 has no option to leave out."""
    if OWN_PYTHON_VARIABLE in os.environ:
        sys.path[:] = [place for place in sys.path if place != os.getcwd()]


def function_of(entry: str) -> Callable[..., bool]:
    """Imports the function that executes a run."""
    module, _, name = entry.partition(":")
    function: Callable[..., bool] = getattr(
        import_module(f"breakeven.runner.worker.{module}"), name
    )
    return function


def show_only(devices: Sequence[str], environment: MutableMapping[str, str]) -> None:
    """Hides all CUDA devices but `devices`, whose numbers count the visible ones; torch must not be
    imported yet."""
    numbers = [int(number) for _, _, number in (name.partition(":") for name in devices) if number]
    listed = environment.get(CUDA_VISIBLE)
    names = [str(number) for number in numbers]
    if listed is not None:
        visible = listed.split(",")
        names = [visible[number] for number in numbers if number < len(visible)]
    environment[CUDA_VISIBLE] = ",".join(names)


def name_of_visible(device: str, place: int = 0) -> str:
    """The device's name in a process that sees only the run's own ones; `place` among these."""
    kind, _, number = device.partition(":")
    return f"{kind}:{place}" if number else kind


def check_meanwhile(run: RunDir, refuse: Callable[[Refused], None]) -> Callable[[], None]:
    """Starts a process that checks the experiment with torch, unless that was done when it was
    queued; returns a function that waits for the answer. After a refusal a thread calls `refuse`.

    Call this before `prepare`, which hides devices from torch.
    """
    if not run.is_unchecked:
        return lambda: None
    check = subprocess.Popen(
        [os.environ.get(OWN_PYTHON_VARIABLE, sys.executable), *CHECK_COMMAND, str(run.path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )

    def read() -> None:
        answer, _ = check.communicate()
        if check.returncode > 0:
            answer = "torch failed to check whether this can run here; output.log says why"
        if answer:
            refuse(Refused(answer))

    reader = threading.Thread(target=read, name="check", daemon=True)
    reader.start()
    return reader.join


def prepare(spec: RunSpec, run: RunDir) -> None:
    """Sets the environment variables that must be set before torch is imported."""
    experiment = spec.experiment
    usual = max(1, cpu_allowance().default_threads // experiment.ranks_per_node)
    if experiment.workload.is_own_program and experiment.num_ranks > 1:
        usual = 1  # as torchrun
    own = {text.partition("=")[0] for text in spec.arm.variables}
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        if variable not in own:
            os.environ[variable] = str(experiment.cpu_threads or usual)
    for variable, usual_text in USUAL_VARIABLES.items():
        if variable not in spec.script.names_of_variables:
            os.environ[variable] = usual_text
    if experiment.workload.selects_device:
        show_only(experiment.devices, os.environ)
    # With a separate folder every compilation is cold, whatever other backends have compiled.
    # Only a warm run finds files there: the supervisor has copied them from the cold run.
    if spec.arm.cache == "warm" and not run.compile_cache.exists():
        raise RunnerError(f"{run.run_id}: the cold run left no compile caches to begin with")
    if run.is_later_start and not run.compile_cache.exists():
        raise RunnerError(f"{run.run_id}: the compile caches of its first process are gone")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(run.compile_cache / "inductor")
    os.environ["TRITON_CACHE_DIR"] = str(run.compile_cache / "triton")
    protect_compiler_folder()
    go_offline_without_hub(experiment)
    if experiment.keep_trace:
        os.environ["TORCH_TRACE"] = str(run.artifacts / "trace")


@contextmanager
def loading() -> Iterator[None]:
    """Stops the garbage collector while torch is imported or a trace is read. The loaded objects
    stay in use, and repeated visits to them would take a sixth of the processor time of importing
    torch, and more than half of that of reading a trace."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
