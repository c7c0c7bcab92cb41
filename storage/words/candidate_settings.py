"""Describes a backend and its settings to readers who know nothing of compilers."""

from typing import Any

from breakeven.runner.specs.arm_fields import Arm

COMPILERS = {
    None: "not compiled",
    "inductor": "compiled into fused kernels",
    "cudagraphs": "not compiled, but CUDA graphs replay each step without Python",
}
SETTINGS: dict[tuple[str, Any], str] = {
    ("scope", "forward"): "the optimizer is not compiled",
    ("scope", "blocks"): "one layer is compiled for all equal layers",
    ("mode", "reduce-overhead"): "CUDA graphs replay each step without Python",
    (
        "mode",
        "max-autotune",
    ): "matrix products use the fastest of several kernels, and CUDA graphs replay each step",
    ("mode", "max-autotune-no-cudagraphs"): "matrix products use the fastest of several kernels",
    ("cpp_wrapper", True): "C++ starts the kernels instead of Python",
    ("coordinate_descent_tuning", True): "the sizes of kernels are tuned",
    ("optimizer", "for_loop"): "the optimizer updates one parameter after the other",
    ("optimizer", "foreach"): "the optimizer updates many parameters at once",
    ("optimizer", "fused"): "the optimizer does all its work in one kernel",
    ("tf32", True): "float32 products are rounded to TF32",
    ("math_attention", "reduced"): "attention adds up in half precision",
}


def setting_words(arm: Arm) -> str:
    """`compiled into fused kernels; the optimizer is not compiled`; empty for other backends."""
    first = COMPILERS.get(arm.backend, "")
    rest = [text for (name, value), text in SETTINGS.items() if arm.settings.get(name) == value]
    if arm.batch_times > 1:
        rest.append(f"batches are {arm.batch_times} times as large")
    if arm.loader_workers:
        rest.append(f"{arm.loader_workers} processes load the data")
    return "; ".join([first, *rest]) if first else ""
