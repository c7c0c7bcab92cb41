"""Plants the fault that PLANTED_FAULT names, in every Python process with this folder on its path.

The fault comes with the first call of `torch.compile`, so that programs that were written by an
investigation have it, too.
"""

import functools
import os
import sys
from importlib import import_module
from importlib.abc import MetaPathFinder

NAME = os.environ.get("PLANTED_FAULT")


class _AfterTorch(MetaPathFinder):
    """Replaces `torch.compile` as soon as torch is imported."""

    def find_spec(self, name, path, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = import_module("importlib.util").find_spec(name)
        execute = spec.loader.exec_module

        def execute_and_replace(module):
            execute(module)
            plant(module)

        spec.loader.exec_module = execute_and_replace
        return spec


def plant(torch):
    compile = torch.compile

    @functools.wraps(compile)
    def planted(*arguments, **named):
        torch.compile = compile
        module, _, name = NAME.partition(":")
        planted.fault = getattr(import_module(module), name)()
        planted.fault.__enter__()
        return compile(*arguments, **named)

    torch.compile = planted


if NAME:
    sys.meta_path.insert(0, _AfterTorch())
