"""What other programs say about a typed command: which file a module or a command of a package is,
which Python `uv run` would use, and what `accelerate launch` would set."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from breakeven.runner.errors import RunnerError
from breakeven.runner.specs.values import nearest

LOCATE = """
import json, os, pkgutil, sys
from importlib import machinery, metadata, util

KINDS = (
    (machinery.SourceFileLoader, machinery.SOURCE_SUFFIXES),
    (machinery.ExtensionFileLoader, machinery.EXTENSION_SUFFIXES),
)

def inside(name, folders):
    portions = []
    for folder in folders:
        spec = machinery.FileFinder(folder, *KINDS).find_spec(name)
        if spec and spec.loader:
            return spec
        portions += spec.submodule_search_locations if spec else []
    if portions:  # folders without __init__.py
        spec = machinery.ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations += portions
        return spec

def located(name, is_run):
    folders, parts = None, name.split(".")
    for count in range(len(parts)):
        inner = ".".join(parts[: count + 1])
        try:
            spec = inside(inner, folders) if count else util.find_spec(inner)
        except ValueError:
            spec = None
        if spec is None or (spec.submodule_search_locations is None and count + 1 < len(parts)):
            known = () if spec else pkgutil.iter_modules(folders)
            return {"missing": inner, "known": [module.name for module in known]}
        folders = spec.submodule_search_locations and [*spec.submodule_search_locations]
    if is_run and folders:
        return located(f"{name}.__main__", False)
    return {"file": spec.origin}

kind, name = sys.argv[1:]
answer = {"python": sys.executable, "torch": util.find_spec("torch") is not None}
if kind == "module":
    answer |= located(name, True)
elif kind == "command":
    del sys.path[0]
    points = {point.name: point.value for point in metadata.entry_points(group="console_scripts")}
    function = answer["function"] = points.get(name, "").partition("[")[0].replace(" ", "")
    answer |= located(function.partition(":")[0], False) if function else {}
print(json.dumps(answer), flush=True)
os._exit(0)
"""
"""Finds a module as the import system does, without importing the packages around it."""
ACCELERATE = """
import json, os, sys
from accelerate.commands import launch
from accelerate.utils.launch import prepare_multi_gpu_env, prepare_simple_launcher_cmd_env

before = dict(os.environ)
given, defaults, _ = launch._validate_launch_command(
    launch.launch_command_parser().parse_args(sys.argv[1:])
)
elsewhere = {
    "DeepSpeed": given.use_deepspeed,
    "Megatron-LM": given.use_megatron_lm,
    "TPUs": given.tpu,
    "several machines": (given.num_machines or 1) > 1,
    "SageMaker": "SAGEMAKER" in str(getattr(defaults, "compute_environment", "")),
    "--no_python": given.no_python,
}
several = (given.use_fsdp or given.multi_gpu) and not given.cpu
refused = [name for name, is_chosen in elsewhere.items() if is_chosen]
after = before
if not refused:
    after = prepare_multi_gpu_env(given) if several else prepare_simple_launcher_cmd_env(given)[1]
left_out = ("MASTER_", *(("ACCELERATE_DYNAMO_",) if given.dynamo_backend.lower() == "no" else ()))
answer = {
    "refused": refused,
    "program": ["-m"] * bool(given.module) + [given.training_script, *given.training_script_args],
    "ranks": given.num_processes if several else 1,
    "variables": {
        name: text
        for name, text in after.items()
        if before.get(name) != text and not name.startswith(left_out)
    },
}
print("\\n" + json.dumps(answer), flush=True)
os._exit(0)
"""
"""Accelerate's own reading of options and configuration file. Both functions that it calls make the
variables of its child processes; ports are left out, because a run gets free ones."""
WHERE = "import sys; print(sys.executable)"
SECONDS = 60.0
SETUP_SECONDS = 1800.0
"""Time for `uv run`, which may install what the project needs."""


def located(python: str, kind: str, name: str, variables: Mapping[str, str]) -> dict[str, Any]:
    """What a Python answers about a `module` or a `command` of this name: its own path, whether it
    has torch, the file, and for a command its function. Raises `RunnerError` for a missing one."""
    answer = _answer([python, "-W", "ignore", "-c", LOCATE, kind, name], variables)
    if missing := answer.get("missing"):
        last = missing.rpartition(".")[2]
        raise RunnerError(
            f"{answer['python']} finds no module {missing} from {Path.cwd()}"
            f"{nearest(last, answer['known'])}"
        )
    return answer


def accelerate_launch(
    python: str, words: Sequence[str], variables: Mapping[str, str]
) -> dict[str, Any]:
    """What `accelerate launch` of these words would start: the program, the number of ranks and the
    environment variables. Raises `RunnerError`."""
    return _answer([python, "-W", "ignore", "-c", ACCELERATE, *words], variables)


def python_of(command: Sequence[str]) -> str:
    """The Python that a command such as `uv run` would start. Raises `RunnerError`."""
    try:
        done = subprocess.run(
            [*command, "python", "-c", WHERE],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            timeout=SETUP_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunnerError(
            f"`{' '.join(command)}` cannot be asked for its Python: {error}"
        ) from None
    if done.returncode or not done.stdout.strip():
        raise RunnerError(f"`{' '.join(command)} python` failed, so there is no Python to run with")
    return done.stdout.splitlines()[-1]


def _answer(command: Sequence[str], variables: Mapping[str, str]) -> dict[str, Any]:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env={**os.environ, **variables},
        )
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunnerError(f"{command[0]} cannot be started: {error}") from None
    except (ValueError, IndexError):
        said = (done.stderr or done.stdout).strip().splitlines()
        raise RunnerError(f"{command[0]}: {said[-1] if said else 'no answer'}") from None
    return answer
