"""Gives the optimizers that a script makes another form."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from torch.optim import Optimizer

from breakeven.runner.errors import WorkloadError
from breakeven.runner.specs.variants import OptimizerForm

NO_FORM = "the script's optimizer {} has no form {!r}"
CHOSEN = "the script itself chooses the form of its optimizer {}, so no other form is measured"


@contextmanager
def optimizers_in(form: OptimizerForm | None) -> Iterator[None]:
    """Makes each optimizer in this form, as its arguments `foreach` and `fused` do; None leaves the
    script's. Raises `WorkloadError` in the script for an optimizer that has no such form, or whose
    form the script chooses."""
    make = Optimizer.__init__

    @wraps(make)
    def init(self: Optimizer, params: Any, defaults: dict[str, Any]) -> None:
        name = type(self).__name__
        if ("fused" if form == "for_loop" else form) not in defaults:
            raise WorkloadError(NO_FORM.format(name, form))
        if any(defaults.get(one) is not None for one in ("fused", "foreach")):
            raise WorkloadError(CHOSEN.format(name))
        make(self, params, {**defaults, "fused": form == "fused", "foreach": form == "foreach"})

    if form is not None:
        Optimizer.__init__ = init  # type: ignore[method-assign]
    try:
        yield
    finally:
        Optimizer.__init__ = make  # type: ignore[method-assign]
