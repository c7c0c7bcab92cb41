"""Capabilities of this machine: devices, torch, Dynamo backends, optimizers, tasks, C++ compiler.

A subprocess imports torch and lists them in seconds (the probe). The answer is cached in the data
folder until the installed torch, the tasks or the visible devices change, or until it is a day old.

`seen` reports the visible devices in a millisecond, without torch and without torch's names of
devices. If its result changes, the probe must run again.
"""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from breakeven.runner.errors import InvalidSpec, ProbeFailed
from breakeven.runner.files import write_atomically
from breakeven.runner.machine.placement import CPU
from breakeven.runner.machine.run_variables import run_variables
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.python310 import Self
from breakeven.runner.specs.arm_fields import QUICK_COMPILERS
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.fields import Spec
from breakeven.runner.specs.training import NO_OPTIMIZER
from breakeven.runner.specs.values import nearest
from breakeven.runner.specs.workload import TASKS, Task

VARIABLES = (
    "CUDA_DEVICE_ORDER",
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
)
"""Variables that set the visible GPUs and their order."""
PLACES = {
    "gpu": "proc/driver/nvidia/gpus/*",
    "part of a gpu": "proc/driver/nvidia/capabilities/gpu*/mig/gi*/ci*",
    "device file": "dev/nvidia[0-9]*",
    "amd": "sys/class/kfd/kfd/topology/nodes/*",
}
"""Where the system lists devices; between containers only the second and third may differ."""
DRIVER = "proc/driver/nvidia/version"

VisibleHardware = tuple[str, ...]
"""One text for each visible device, driver or variable, in order."""


def visible_hardware(
    environment: Mapping[str, str] = os.environ, root: Path = Path("/")
) -> VisibleHardware:
    """Visible devices, their driver, and variables that hide devices; empty on a machine without a
    GPU and on macOS."""
    sight = [
        f"{kind} {path.relative_to(root)}"
        for kind, places in PLACES.items()
        for path in sorted(root.glob(places))
    ]
    try:
        version = re.search(r"\b\d+\.\d+(?:\.\d+)?\b", (root / DRIVER).read_text())
        sight += [f"driver {version[0]}"] if version else []
    except OSError:
        pass
    sight += [f"{name}={environment[name]}" for name in VARIABLES if name in environment]
    return tuple(sight)


def shows_gpu(sight: VisibleHardware) -> bool:
    """Whether there is a GPU, even if torch cannot use it."""
    return any(word.startswith(("gpu ", "device file ")) for word in sight)


PROBE_COMMAND = (sys.executable, "-m", "breakeven.runner.worker.probe")
MAX_AGE_SECONDS = 86_400.0
ANSWER_SECONDS = 180.0
PLUGINS = "torch_dynamo_backends"
"""Entry points by which packages add backends."""
PROVIDERS = {
    "openxla": "torch_xla",
    "openxla_eval": "torch_xla",
    "tvm": "tvm",
    "onnxrt": "onnxruntime",
}
"""Packages of backends that torch lists even if the package is missing."""
TORCHS_BACKENDS = ("cudagraphs", "inductor", "onnxrt", "openxla", "openxla_eval", "tvm")
TORCHS_DEBUG_BACKENDS = (
    "aot_eager",
    "aot_eager_decomp_partition",
    "aot_eager_default_partitioner",
    "aot_ts",
    "eager",
    "eager_debug",
    "eager_noexcept",
    "pre_dispatch_eager",
    "ts",
)
TORCHS_OPTIMIZERS = (
    "ASGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "NAdam",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SGD",
)
"""Backends and optimizers of every torch 2. Before the first probe, an unknown name that resembles
one of them counts as mistyped."""


@dataclass(frozen=True, kw_only=True)
class Device(Spec):
    """A compute device; `id` is its name in specifications. None means unknown."""

    id: str
    name: str
    memory_bytes: int | None
    numa_node: int | None = None
    """The node whose CPUs and memory are near it."""


@dataclass(frozen=True, kw_only=True)
class Capabilities(Spec):
    """The result of the probe. Backends tagged for testing or debugging are in `debug_backends`;
    backends whose package is not installed are omitted."""

    torch_version: str
    python: str
    devices: tuple[Device, ...]
    backends: tuple[str, ...]
    debug_backends: tuple[str, ...]
    optimizers: tuple[str, ...]
    tasks: dict[str, Task]
    cpp_compiler: str | None
    """Path of the C++ compiler that Inductor needs on the CPU; None if there is none."""
    seen: VisibleHardware
    """Result of `seen` when the probe began."""
    time: float
    """When the probe ran, in seconds since the epoch."""

    @classmethod
    def from_dict(cls, content: Any, path: str = "") -> Self:
        """Leaves out the backends whose package is not installed."""
        capabilities = super().from_dict(content, path)
        return replace(
            capabilities,
            backends=tuple(filter(_is_installed, capabilities.backends)),
            debug_backends=tuple(filter(_is_installed, capabilities.debug_backends)),
        )

    @property
    def is_guessed(self) -> bool:
        """Whether torch was not asked yet: `likely_capabilities`."""
        return not self.torch_version

    @property
    def device_names(self) -> tuple[str, ...]:
        """All device names for specifications, including `cuda` for any of `cuda:0`, `cuda:1`
        and so on."""
        ids = tuple(device.id for device in self.devices)
        return (*ids, "cuda") if any(name.startswith("cuda:") for name in ids) else ids

    @property
    def usual_device(self) -> str:
        """The default device of an experiment: the first GPU, or else the CPU."""
        return next((device.id for device in self.devices if device.id != "cpu"), "cpu")

    def check(self, spec: ExperimentSpec) -> None:
        """Raises `InvalidSpec` for a backend, optimizer or device that this machine lacks."""
        backends = _backends_of_torch(spec)
        for backend in backends:
            self.check_backend(backend)
        if spec.training.optimizer != NO_OPTIMIZER:
            _check_known("training.optimizer", spec.training.optimizer, self.optimizers)
        for device in spec.devices:
            _check_known("devices", device, self.device_names)
        if "inductor" in backends and spec.device == "cpu" and self.cpp_compiler is None:
            rule = "inductor on the CPU needs a C++ compiler; install one (Debian: apt install g++)"
            raise InvalidSpec("backends", "inductor", rule)

    def check_backend(self, backend: str) -> None:
        """Raises `InvalidSpec` with the nearest name for an unknown backend. Of the debug backends,
        the message lists only those that are used for training."""
        usual = [name for name in QUICK_COMPILERS if name in self.debug_backends]
        if not _is_installed(backend):
            rule = f"needs the package {PROVIDERS[backend]}, which is not installed here"
            raise InvalidSpec("backends", backend, f"{rule}; {_offer(*self.backends, *usual)}")
        every = (*self.backends, *self.debug_backends)
        _check_known("backends", backend, every, shown=(*self.backends, *usual))


def likely_capabilities() -> Capabilities:
    """The capabilities known without torch, before the first probe: at most one GPU, of a kind that
    the installed torch supports, and the features of every torch 2."""
    device = _likely_device()
    devices = [
        Device(id=name, name=name, memory_bytes=None) for name in dict.fromkeys((CPU, device))
    ]
    compilers = (os.environ.get("CXX", "g++"), "clang++")
    plugins = [plugin.name for plugin in metadata.entry_points(group=PLUGINS)]
    return Capabilities(
        torch_version="",
        python=sys.executable,
        devices=tuple(devices),
        tasks={},
        backends=(*filter(_is_installed, TORCHS_BACKENDS), *plugins),
        debug_backends=TORCHS_DEBUG_BACKENDS,
        optimizers=TORCHS_OPTIMIZERS,
        cpp_compiler=next(filter(None, map(shutil.which, compilers)), None),
        seen=(),
        time=0.0,
    )


def _likely_device() -> str:
    torch = find_spec("torch")
    if torch is None or torch.origin is None:
        return CPU
    built_for = Path(torch.origin).with_name("version.py").read_text()
    gpus = {
        "cuda": shows_gpu(visible_hardware()) or Path("/dev/dxg").exists(),
        "hip": any(word.startswith("amd ") for word in visible_hardware()),
    }
    if any(
        is_visible and re.search(rf"^{kind}\b.*= '", built_for, re.M)
        for kind, is_visible in gpus.items()
    ):
        return "cuda:0"
    is_apple = (sys.platform, platform.machine()) == ("darwin", "arm64")
    return "mps" if is_apple else CPU


def check_mistyped(spec: ExperimentSpec) -> None:
    """Raises `InvalidSpec` for a backend or optimizer that looks like a typing error, or whose
    package is not installed, and for a GPU where none is visible: the possible checks before the
    first probe."""
    likely = likely_capabilities()
    for device in () if spec.environments else spec.devices:
        if device.startswith("cuda") and likely.usual_device != "cuda:0":
            rule = "is not there: no GPU is visible, or torch is built without support for it; "
            raise InvalidSpec("devices", device, rule + "`breakeven doctor` says more")
    known = (*likely.backends, *likely.debug_backends)
    for backend in _backends_of_torch(spec):
        if backend not in known and (not _is_installed(backend) or nearest(backend, known)):
            likely.check_backend(backend)
    optimizer = spec.training.optimizer
    if optimizer != NO_OPTIMIZER and nearest(optimizer, likely.optimizers):
        _check_known("training.optimizer", optimizer, likely.optimizers)


def known_devices(data_dir: DataDir) -> tuple[Device, ...]:
    """Devices of the cached answer, even if it is outdated; none without an answer."""
    cached = _kept(data_dir)
    return () if cached is None else cached.devices


def knows_devices(data_dir: DataDir) -> bool:
    """Whether the cached answer, of any age, fits the current state of this machine."""
    cached = _kept(data_dir)
    return cached is not None and fits_this_machine(cached)


def _kept(data_dir: DataDir) -> Capabilities | None:
    try:
        return Capabilities.from_json(data_dir.capabilities_file.read_text())
    except (OSError, ValueError):
        return None


def read_capabilities(data_dir: DataDir) -> Capabilities | None:
    """The cached answer; None if it is missing or outdated."""
    cached = _kept(data_dir)
    if cached is None or not fits_this_machine(cached):
        return None
    return cached if 0 <= time.time() - cached.time < MAX_AGE_SECONDS else None


def installed_version(package: str) -> str | None:
    """The version of an installed package; None if it is missing."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _changes_of_packages() -> tuple[tuple[str, float], ...]:
    """The folders of packages with the times at which one came or went."""
    folders = filter(os.path.isdir, sys.path)
    return tuple((folder, os.stat(folder).st_mtime) for folder in folders)


@cache
def _plugins(changes: tuple[tuple[str, float], ...]) -> frozenset[str]:
    """Names of the backends of other packages. Reading all packages takes longer than a page."""
    return frozenset(plugin.name for plugin in metadata.entry_points(group=PLUGINS))


def fits_this_machine(cached: Capabilities) -> bool:
    """Whether the software, tasks and visible devices are still those of the answer."""
    torch_version = installed_version("torch")
    if torch_version is None:
        return False
    same_torch = cached.torch_version.split("+")[0] == torch_version.split("+")[0]
    same_python = cached.python == sys.executable
    plugins = _plugins(_changes_of_packages())
    knows_plugins = plugins <= {*cached.backends, *cached.debug_backends}
    same_software = same_torch and same_python and knows_plugins
    return same_software and set(cached.tasks) == set(TASKS) and cached.seen == visible_hardware()


def probe(data_dir: DataDir) -> Capabilities:
    """Runs torch in a subprocess (seconds) and caches its answer; raises `ProbeFailed`."""
    before = visible_hardware()
    content = ask_torch(PROBE_COMMAND, "torch did not report the devices of this machine")
    capabilities = Capabilities.from_dict(
        {**content, "python": sys.executable, "seen": before, "time": time.time()}
    )
    with suppress(OSError):  # If the folder is read-only, the answer is used but not cached.
        data_dir.path.mkdir(parents=True, exist_ok=True)
        write_atomically(data_dir.capabilities_file, capabilities.to_json())
    return capabilities


def ask_torch(command: Sequence[str], failed: str, text: str = "") -> dict[str, Any]:
    """The JSON object in the last line that a command prints, which gets `text` as its input.
    Raises `ProbeFailed` with `failed` and the end of the command's errors."""
    try:
        done = subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_SECONDS,
            cwd=PROJECT_ROOT,
            env={**run_variables(os.environ), "PYTHONWARNINGS": "ignore"},
        )
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        raise ProbeFailed(f"torch did not answer within {ANSWER_SECONDS:.0f} s") from None
    except (ValueError, IndexError):
        tail = "\n".join(done.stderr.strip().splitlines()[-5:])
        raise ProbeFailed(f"{failed}:\n{tail}") from None
    return answer


def _backends_of_torch(spec: ExperimentSpec) -> list[str]:
    """Those that torch should list; `runner.checks` looks for the others. Other environments may
    have others."""
    return [
        arm.backend
        for arm in spec.possible_arms
        if arm.backend and not arm.path_of_backend and not (arm.environment or arm.python)
    ]


def _is_installed(backend: str) -> bool:
    """Whether the package that a backend needs can be found; nothing is imported."""
    return backend not in PROVIDERS or find_spec(PROVIDERS[backend]) is not None


def _check_known(
    field: str, value: str, known: Sequence[str], shown: Sequence[str] | None = None
) -> None:
    """Raises `InvalidSpec` for an unknown name. `shown`: names in the message, if not all."""
    if value in known:
        return
    rule = f"is not there; {_offer(*(shown or known))}{nearest(value, known)}"
    raise InvalidSpec(field, value, rule)


def _offer(*names: str) -> str:
    return f"this machine has {', '.join(names)}"
