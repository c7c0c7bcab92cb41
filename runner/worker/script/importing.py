"""Changes a module once a script has imported it: nothing is imported that it does not use."""

import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Attach = Callable[[ModuleType, Any], None]
"""Given a module and whom it shall tell."""


@contextmanager
def after_import(modules: Mapping[str, Attach], listener: Any) -> Iterator[None]:
    """Calls what stands for each module, at once if it is there, else right after its import."""
    for name, attach in modules.items():
        if name in sys.modules:
            attach(sys.modules[name], listener)
    finder = _Finder(modules, listener)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Finder(MetaPathFinder):
    def __init__(self, modules: Mapping[str, Attach], listener: Any) -> None:
        self._left = dict(modules)
        self._listener = listener

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        attach = self._left.pop(name, None)  # before others are asked, which ask this one again
        found = None if attach is None else importlib.util.find_spec(name)
        if attach is None or found is None or found.loader is None:
            return found
        found.loader = _Loader(found.loader, lambda module: attach(module, self._listener))
        return found


class _Loader(Loader):
    def __init__(self, loader: Loader, loaded: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._loaded = loaded

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._loaded(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
