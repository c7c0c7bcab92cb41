"""Checks of users' Python files: the administrator decides which may run.

A specification is data and may come from anybody; `path.py:name` and `package.module:attribute` in
it are code. A run executes it only from the folders that the environment of its supervisor lists in
`BREAKEVEN_CODE`.
"""

import ast
import os
from importlib.machinery import all_suffixes
from importlib.util import find_spec
from pathlib import Path

from breakeven.runner.errors import CodeNotAllowed, InvalidSpec
from breakeven.runner.machine.run_variables import PASS_VARIABLE, named_variables
from breakeven.runner.specs.experiment import ExperimentSpec, ScriptSpec
from breakeven.runner.specs.values import BY_PATH
from breakeven.runner.specs.workload import USER_CODE

CODE_VARIABLE = "BREAKEVEN_CODE"
"""Environment variable with the folders whose Python files may run, separated like `PATH`."""
INIT = "__init__"
"""Name of the file that makes a folder a package; a folder without one is a package, too."""
MAIN = "__main__"
"""Name of the file that `python -m` runs of a package."""


def locate(source: str) -> tuple[Path, str]:
    """The resolved file and the name after the colon of `path.py:name` or
    `package.module:attribute`, empty for a script.

    Raises `CodeNotAllowed` unless the file, and the files of the packages that it belongs to, lie
    in folders that `BREAKEVEN_CODE` lists; `InvalidSpec` for a missing module.
    """
    is_file = USER_CODE.fullmatch(source)
    path, _, name = source.rpartition(":") if is_file else (source, "", "")
    if not is_file and BY_PATH.fullmatch(source):
        files = [allowed(source, file) for file in module_files(source)]
        return files[-1], source.partition(":")[2]
    return allowed(source, Path(path)), name


def module_files(source: str) -> list[Path]:
    """The files that the import of the module of `package.module:attribute` executes: those of its
    packages, and its own. Executes none; raises `InvalidSpec` for a missing module."""
    name, *inner = source.partition(":")[0].split(".")
    spec = None if name == "__main__" else find_spec(name)
    if spec is None:
        rule = f"needs the package {name}, which is not installed here"
        raise InvalidSpec("backends", source, rule)
    files = [Path(spec.origin)] if spec.has_location and spec.origin else []
    folders = [*map(Path, spec.submodule_search_locations or ())]
    # `find_spec` would import the packages around a module.
    for part in inner:
        names = [f"{part}{end}{suffix}" for end in (f"/{INIT}", "") for suffix in all_suffixes()]
        modules = [
            folder / file for folder in folders for file in names if (folder / file).is_file()
        ]
        folders = [folder / part for folder in folders if (folder / part).is_dir()]
        if not modules and not folders:
            raise InvalidSpec("backends", source, f"{name} has no module {part!r}")
        if modules:
            files.append(modules[0])
            folders = [modules[0].parent] if modules[0].name.startswith(INIT) else []
        name = f"{name}.{part}"
    if not files:
        raise InvalidSpec("backends", source, "is a part of Python itself, and no backend")
    return files


def allowed(source: str, path: Path) -> Path:
    """The resolved path; raises `CodeNotAllowed` unless it lies in a folder that `BREAKEVEN_CODE`
    lists. The error names `source`."""
    file = path.expanduser().resolve()
    folders = [Path(entry).expanduser().resolve() for entry in allowed_folders()]
    if any(file.is_relative_to(folder) for folder in folders):
        return file
    listed = os.pathsep.join(map(str, folders)) or "empty"
    wanted = file if file.is_dir() else file.parent
    raise CodeNotAllowed(
        f"{source!r}: {file} may not run here. If you trust its folder, add "
        f"`--allow-code={wanted}` to the command, or start the supervisor or the dashboard with "
        f"{CODE_VARIABLE}={wanted} (now {listed})"
    )


def allowed_folders() -> list[str]:
    """The entries of `BREAKEVEN_CODE`."""
    return [entry for entry in os.environ.get(CODE_VARIABLE, "").split(os.pathsep) if entry]


HARMLESS_VARIABLES = frozenset(
    [
        "OMP_NUM_THREADS",
        "OMP_PROC_BIND",
        "OMP_PLACES",
        "MKL_NUM_THREADS",
        "KMP_AFFINITY",
        "KMP_BLOCKTIME",
        "TOKENIZERS_PARALLELISM",
        "HF_HUB_OFFLINE",
        "HF_DATASETS_OFFLINE",
        "TRANSFORMERS_OFFLINE",
        "WANDB_MODE",
        "WANDB_DISABLED",
        "CUDA_DEVICE_ORDER",
        "CUDA_LAUNCH_BLOCKING",
        "CUBLAS_WORKSPACE_CONFIG",
        "NVIDIA_TF32_OVERRIDE",
        "NCCL_DEBUG",
        "PYTORCH_ALLOC_CONF",
        "PYTORCH_CUDA_ALLOC_CONF",
        "TORCH_LOGS",
        "PYTHONDEVMODE",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONFAULTHANDLER",
        "PYTHONHASHSEED",
        "PYTHONNOUSERSITE",
        "PYTHONOPTIMIZE",
        "PYTHONSAFEPATH",
        "PYTHONUNBUFFERED",
        "PYTHONUTF8",
        "RANK",
        "LOCAL_RANK",
        "GROUP_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "TORCHELASTIC_RUN_ID",
    ]
)
"""Environment variables that anybody may set for a script: no value of theirs is code, or names a
file with code. Many others, such as LD_PRELOAD, do."""
HARMLESS_PREFIXES = ("ACCELERATE_", "FSDP_")
IMPORT_PATH = "PYTHONPATH"


def check_variables(script: ScriptSpec) -> None:
    """Raises `CodeNotAllowed` for an environment variable with which a script may execute other
    code, unless the administrator allows this variable, or each folder of `PYTHONPATH`."""
    named = named_variables(os.environ)
    for name, value in script.variables_by_name.items():
        if name == IMPORT_PATH:
            for entry in filter(None, value.split(os.pathsep)):
                allowed(f"{name}={value}", Path(entry))
        elif name not in named | HARMLESS_VARIABLES and not name.startswith(HARMLESS_PREFIXES):
            raise CodeNotAllowed(
                f"{name}={value}: this variable may not be set here, because some variables make a "
                "run execute other code. If you trust it, type it before the command, `breakeven "
                f"run {name}=... python train.py`, or start the supervisor or the dashboard with "
                f"{PASS_VARIABLE}={name}"
            )


def check_arms(spec: ExperimentSpec) -> None:
    """Raises `CodeNotAllowed` for a variable or a diff with which an arm may execute other code,
    `InvalidSpec` for a missing diff."""
    for arm in spec.possible_arms:
        check_variables(spec.script_of(arm))
        if arm.diff and not allowed(arm.diff, Path(arm.diff)).is_file():
            raise InvalidSpec("named_arms", arm.diff, "is not a file")


def folders_of_script(spec: ExperimentSpec) -> list[Path]:
    """The folders with the code of a script: that of its file, or for a module that of its
    outermost package, that in which it starts, those of `PYTHONPATH`, and those of diffs."""
    paths = {spec.script_of(arm).variables_by_name.get(IMPORT_PATH, "") for arm in spec.arms}
    named = [spec.script.folder, *(entry for path in paths for entry in path.split(os.pathsep))]
    diffs = [Path(arm.diff).parent for arm in spec.arms if arm.diff]
    return [package_of(spec), *map(Path, filter(None, named)), *diffs]


def package_of(spec: ExperimentSpec) -> Path:
    """The folder of a script's file; for a module that of its outermost package."""
    assert spec.model.script is not None
    file = Path(spec.model.script)
    names = spec.script.names_of_module
    is_inside = file.stem in (INIT, MAIN) and names[-1:] != (file.stem,)
    return file.parents[max(0, len(names) - (1 if is_inside else 2))]


OURS = "breakeven"
"""This package, which is imported before a script starts."""
SAME_NAME = (
    f"lies next to your module {OURS!r}, but `import {OURS}` imports Breakeven's module. Rename "
    "your module, or move the script to another folder"
)


def check_script(spec: ExperimentSpec) -> None:
    """Raises `InvalidSpec` for a script that is not Python, and `CodeNotAllowed` for one that
    may not run here."""
    source, path = spec.model.source, spec.model.script
    assert path is not None
    file, _ = locate(path)
    if not file.is_file():
        raise InvalidSpec("model.source", source, f"there is no file {file}")
    check_arms(spec)
    folder = Path(spec.script.folder or file.parent)
    allowed(str(folder), folder)
    if not folder.is_dir():
        raise InvalidSpec("script.folder", str(folder), "is not a folder")
    _check_python(file, source)
    if (file.parent / OURS).is_dir() or (file.parent / f"{OURS}.py").is_file():
        raise InvalidSpec("model.source", source, SAME_NAME)


def _check_python(file: Path, source: str) -> None:
    try:
        ast.parse(file.read_bytes(), str(file))
    except SyntaxError as error:
        rule = f"is not valid Python: line {error.lineno}: {error.msg}"
        raise InvalidSpec("model.source", source, rule) from None
    except (OSError, ValueError) as error:
        raise InvalidSpec("model.source", source, f"cannot be read: {error}") from None
