"""Correct Dynamo backends that round differently from eager, forward and backward. They sum every
matrix product in another order, and do everything else as eager does."""

from collections.abc import Callable
from typing import Any

import torch
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch.fx import GraphModule, Interpreter

aten = torch.ops.aten
PARTS = 7

Product = Callable[[Tensor, Tensor], Tensor]


def _with_products(product: Product) -> Callable[..., Any]:
    class Otherwise(Interpreter):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            if target in (aten.mm.default, aten.bmm.default):
                return product(*args)
            if target is aten.addmm.default and not kwargs:
                return args[0] + product(*args[1:])
            return super().call_function(target, args, kwargs)

    def compiled(graph: GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        run: Callable[..., Any] = make_boxed_func(Otherwise(graph).run)
        return run

    return aot_autograd(
        fw_compiler=compiled,
        bw_compiler=compiled,
        partition_fn=min_cut_rematerialization_partition,  # as aot_eager: dropout draws alike
    )


def _in_parts(a: Tensor, b: Tensor) -> Tensor:
    products = [x @ y for x, y in zip(a.chunk(PARTS, -1), b.chunk(PARTS, -2), strict=True)]
    return torch.stack(products).sum(0)


seven_parts = _with_products(_in_parts)
in_double = _with_products(lambda a, b: (a.double() @ b.double()).to(a.dtype))
other_order = _with_products(lambda a, b: a.flip(-1) @ b.flip(-2))

ROUNDING = {"seven_parts": seven_parts, "in_double": in_double, "other_order": other_order}
