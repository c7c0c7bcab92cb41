"""Puts a process back to where it was before a script ran, so that the script can start again.

What the script and its own modules left goes; what libraries have loaded stays, because loading it
is no part of a step. Compiled code goes, too: it belongs to functions that no longer exist, and
would count as recompilations of those that follow.
"""

import gc
import importlib.machinery
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any

import torch
from torch.nn.modules import module as of_modules
from torch.optim import optimizer as of_optimizers

from breakeven.runner.worker.device.base import Device
from breakeven.runner.worker.script.torch_compile import is_library_file

ENDING_SECONDS = 5.0
"""Time for a process of a data loader to end."""
EXTENSIONS = tuple(importlib.machinery.EXTENSION_SUFFIXES)
HOOKS: tuple[dict[Any, Any], ...] = (
    of_modules._global_forward_hooks,
    of_modules._global_forward_pre_hooks,
    of_modules._global_backward_hooks,
    of_modules._global_backward_pre_hooks,
    of_modules._global_parameter_registration_hooks,
    of_modules._global_module_registration_hooks,
    of_modules._global_buffer_registration_hooks,
    of_optimizers._global_optimizer_pre_hooks,
    of_optimizers._global_optimizer_post_hooks,
)
"""Hooks on all modules and all optimizers."""


@contextmanager
def meeting_anew(number: int) -> Iterator[None]:
    """Ranks that meet once more, at the same address, do not find what they left there before.
    `number`: how often they have met."""
    if not (number and torch.distributed.is_available()):
        yield
        return
    from torch.distributed import distributed_c10d

    meet: Any = vars(distributed_c10d)["rendezvous"]

    def met(*args: Any, **kwargs: Any) -> Iterator[tuple[Any, int, int]]:
        for store, rank, size in meet(*args, **kwargs):
            yield distributed_c10d.PrefixStore(f"again {number}", store), rank, size

    vars(distributed_c10d)["rendezvous"] = met
    try:
        yield
    finally:
        vars(distributed_c10d)["rendezvous"] = meet


class BeforeScript:
    """The process as it is now."""

    def __init__(self, device: Device, own_package: str) -> None:
        """`own_package`: the package that is the script, which may be installed; else empty."""
        self._device, self._own_package = device, own_package
        self._folder, self._arguments = os.getcwd(), sys.argv
        self._path, self._variables = list(sys.path), dict(os.environ)
        self._streams = sys.stdout, sys.stderr
        self._modules = set(sys.modules)
        self._hooks = [dict(hooks) for hooks in HOOKS]
        self._settings: list[tuple[Callable[[Any], object], Any]] = [
            (torch.set_default_dtype, torch.get_default_dtype()),
            (torch.set_grad_enabled, torch.is_grad_enabled()),
            (torch.set_num_threads, torch.get_num_threads()),
            (torch.use_deterministic_algorithms, torch.are_deterministic_algorithms_enabled()),
            (torch.autograd.set_detect_anomaly, torch.is_anomaly_enabled()),
        ]

    def restore(self) -> None:
        """Forgets the script, which has ended, and frees its memory."""
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        os.chdir(self._folder)
        sys.argv, sys.path[:] = self._arguments, self._path
        sys.stdout, sys.stderr = self._streams
        os.environ.clear()
        os.environ.update(self._variables)
        for hooks, before in zip(HOOKS, self._hooks, strict=True):
            hooks.clear()
            hooks.update(before)
        torch.set_default_device(None)
        for set_to, value in self._settings:
            set_to(value)
        for name in [name for name, module in sys.modules.items() if self._is_own(name, module)]:
            del sys.modules[name]
        importlib.invalidate_caches()  # the folder is made anew
        torch.compiler.reset()
        self._free()

    def _is_own(self, name: str, module: ModuleType) -> bool:
        """Whether this is a module of the script."""
        package = name.partition(".")[0]
        if name in self._modules or package == "torch":  # such as code that a compiler wrote
            return False
        places = [getattr(module, "__file__", None), *(getattr(module, "__path__", None) or ())]
        place = next(filter(None, places), "")
        if place.endswith(EXTENSIONS):  # cannot be loaded twice
            return False
        return package == self._own_package or bool(place and not is_library_file(place))

    def _free(self) -> None:
        """Frees memory, and ends processes that belong to objects that nothing uses any more."""
        gc.enable()
        gc.unfreeze()
        gc.collect()
        for process in multiprocessing.active_children():
            if process.daemon:  # Python waits for all others at the end of a script
                process.terminate()
            with suppress(Exception):  # a class of the script may say what it likes
                process.join(ENDING_SECONDS)
        self._device.free_memory()
        gc.freeze()
