"""Tells state of a training from its data among the arguments of a compiled function.

What the function returned, and what the script computes from it, is state: new weights, a hidden
state, the moments of an optimizer. It depends on what a backend computes, so a wrong backend has
another state. All else is data.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

MAX_DEPTH = 8
"""Levels of nesting within results."""


class ResultsFollower(TorchDispatchMode):
    """Follows, in a run without a compiler, floating-point tensors from the results of watched
    functions through all operations, also in the backward pass and in optimizers.

    Whole numbers end a trail: what a script selects by an answer of the model, as in reinforcement
    learning, is other data if the answer is another one.
    """

    supports_higher_order_operators = True

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Lets libraries compile their own code meanwhile."""
        return True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        # Weak references hold no memory of tensors, and no other storage gets the same address.
        self._storages: dict[int, StorageWeakRef] = {}
        self._num_steps = 0
        self.is_following = False

    def begin_step(self) -> None:
        """Begins to follow at the first call of this function, in the first observed step."""
        self._num_steps += 1
        if self._num_steps == 1:
            self.is_following = True
            self.__enter__()  # type: ignore[no-untyped-call]

    @property
    def is_last_step(self) -> bool:
        """Whether the open step is the second one, whose arguments show what is state."""
        return self.is_following and self._num_steps > 1

    def end(self) -> None:
        """Stops following; does nothing if it has not begun."""
        if self.is_following and _get_current_dispatch_mode() is self:
            self.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        self.is_following = False
        self._storages.clear()

    def add(self, results: object) -> None:
        """Begins to follow the results of a watched function."""
        if self.is_following:
            self._add(results)

    def knows(self, tensor: Tensor) -> bool:
        """Whether this tensor is, or was computed from, a result."""
        with suppress(NotImplementedError, RuntimeError):  # a tensor without a storage
            return _reference(tensor).cdata in self._storages
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        # An unusual operation must not end the script.
        with suppress(Exception):
            if self.is_following and any(map(self.knows, _floats((args, kwargs)))):
                self._add((result, _written(func, args)))
        return result

    def _add(self, results: object) -> None:
        for tensor in _floats(results):
            with suppress(NotImplementedError, RuntimeError):
                reference = _reference(tensor)
                self._storages[reference.cdata] = reference


def _reference(tensor: Tensor) -> StorageWeakRef:
    return StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]


def _written(func: Any, args: tuple[Any, ...]) -> list[Any]:
    """The arguments in which an operation writes; some of these operations return nothing."""
    schema = getattr(func, "_schema", None)
    arguments = [] if schema is None else schema.arguments
    return [
        value
        for value, argument in zip(args, arguments, strict=False)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]


def _floats(value: object, depth: int = MAX_DEPTH) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        if value.is_floating_point() or torch.is_complex(value):
            yield value
    elif depth and isinstance(value, Mapping):
        for entry in value.values():
            yield from _floats(entry, depth - 1)
    elif depth and isinstance(value, (list, tuple)):
        for entry in value:
            yield from _floats(entry, depth - 1)
