"""Loads functions and classes from users' Python files and packages, and copies the files."""

import hashlib
import importlib.util
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from textwrap import shorten
from types import ModuleType
from typing import Any, cast

from breakeven.runner.checks.allowed_code import locate
from breakeven.runner.errors import WorkloadError
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.values import nearest
from breakeven.runner.specs.workload import USER_CODE
from breakeven.runner.worker.event_log import EventLog

LONGEST_LIST = 300
"""Characters of the names that a message lists."""


def load_object(source: str) -> Any:
    """Loads the object `path.py:name` or `package.module:attribute`; executes a file only once,
    even for several names.

    The file may import files of its folder. Raises `CodeNotAllowed` for a file that may not run
    here, and `WorkloadError` for a file that fails or does not define the name.
    """
    file, name = locate(source)
    module = _load_module(file, source) if USER_CODE.fullmatch(source) else _import(source)
    try:
        return getattr(module, name)
    except AttributeError:
        public = [word for word in vars(module) if not word.startswith("_")]
        hint = nearest(name, public) or f"; it has {shorten(', '.join(public), LONGEST_LIST)}"
        raise WorkloadError(f"{source!r}: {file} does not define {name!r}{hint}") from None


def call(source: str) -> Any:
    """Calls the function `path.py:name` without arguments; returns its result."""
    function = load_object(source)
    if not callable(function):
        raise WorkloadError(
            f"{source!r}: {type(function).__name__} is not a function; name one that can be "
            "called without arguments"
        )
    try:
        return function()
    except Exception as error:
        cause = f"{type(error).__name__}: {error}"
        raise WorkloadError(f"{source!r} failed when it was called: {cause}") from error


def load_backend(path: str) -> Callable[..., Any]:
    """The function, or an instance of the class, that a backend's path names; raises as
    `load_object` does, and `WorkloadError` for what cannot be called."""
    named = load_object(path)
    backend = call(path) if isinstance(named, type) else named
    if not callable(backend):
        kind = type(backend).__name__
        raise WorkloadError(
            f"{path!r}: {kind} cannot be called, but torch calls a backend for each graph"
        )
    return cast(Callable[..., Any], backend)


def copy_sources(sources: Iterable[str], folder: Path) -> list[tuple[str, str, str]]:
    """Copies every file once; returns its source, the copy's name in `folder`, and its SHA-256.

    For a file of several sources, it returns the first source.
    """
    copied: dict[Path, tuple[str, str, str]] = {}
    names: set[str] = set()
    for source in sources:
        file, _ = locate(source)
        if file in copied:
            continue
        content = _read(file, source)
        sha256 = hashlib.sha256(content).hexdigest()
        # Files of several folders may have the same name, but not the same content.
        name = file.name if file.name not in names else f"{file.stem}-{sha256[:8]}.py"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
        names.add(name)
        copied[file] = (source, name, sha256)
    return list(copied.values())


def keep_sources(experiment: ExperimentSpec, run: RunDir, log: EventLog) -> None:
    """Copies the Python files that the run executes, because users may change them later."""
    for source, file, sha256 in copy_sources(experiment.user_code, run.artifacts / "source"):
        log.append("source", source=source, file=f"artifacts/source/{file}", sha256=sha256)


def _load_module(file: Path, source: str) -> ModuleType:
    _read(file, source)
    # The name depends on the path, so that it cannot replace a module of the same file name.
    name = f"{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(file.parent) not in sys.path:
        # At the end, so that no file of this folder replaces a library that is imported later.
        sys.path.append(str(file.parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        cause = f"{type(error).__name__}: {error}"
        raise WorkloadError(f"{source!r}: {file} cannot be imported: {cause}") from error
    return module


def _import(source: str) -> ModuleType:
    try:
        return importlib.import_module(source.partition(":")[0])
    except Exception as error:
        cause = f"{type(error).__name__}: {error}"
        raise WorkloadError(f"{source!r} cannot be imported: {cause}") from error


def _read(file: Path, source: str) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise WorkloadError(f"{source!r}: {file} cannot be read: {error.strerror}") from error
