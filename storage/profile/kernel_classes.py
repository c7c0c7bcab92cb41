"""Classifies kernels and operators by their names.

The rules are one table; the first matching rule counts. They use the name of the kernel and the
operator that started it, if known; in a replayed CUDA graph the operator is unknown.
"""

import re
from typing import NamedTuple

CLASSES = {
    "attention_flash": "attention, flash",
    "attention_cudnn": "attention, cuDNN",
    "attention_efficient": "attention, memory-efficient",
    "attention_flex": "attention, flex",
    "attention_math": "softmax of unfused attention",
    "matmul_fp8": "matrix products in fp8",
    "matmul_fp16": "matrix products in fp16",
    "matmul_bf16": "matrix products in bf16",
    "matmul_tf32": "matrix products in TF32",
    "matmul_float32": "matrix products in float32, no tensor cores",
    "matmul_float64": "matrix products in float64",
    "matmul": "matrix products, precision unknown",
    "convolution": "convolutions",
    "fused": "fused by the compiler",
    "elementwise": "elementwise and reductions, not fused",
    "normalisation": "normalisation",
    "random": "random numbers",
    "copies": "casts and copies",
    "indexing": "embeddings and indexing",
    "loss": "loss",
    "optimizer": "optimizer",
    "transfers": "transfers between host and device",
    "communication": "communication",
    "bookkeeping": "views and allocation",
    "other": "not known",
}
"""Every class with its displayed name, in the order of charts."""
FUSED_ATTENTION = ("attention_flash", "attention_cudnn", "attention_efficient", "attention_flex")
MATMUL = tuple(name for name in CLASSES if name.startswith("matmul"))


class Rule(NamedTuple):
    """A kernel belongs to the class if its name or its operator matches."""

    work_class: str
    name: str | None = None
    op: str | None = None


RULES = (
    Rule("communication", r"nccl|^c10d::", r"^c10d::"),
    Rule("transfers", r"^Memcpy (HtoD|DtoH|PtoP)"),
    Rule(
        "copies",
        r"^(Memcpy DtoD|Memset)|^mem(set|cpy)32|nchwToNhwc|nhwcToNchw|convertTensor"
        r"|direct_copy_kernel|float16_copy_kernel",
    ),
    Rule("attention_cudnn", r"^cudnn_generated.*sdpa|cudnn::fusion::", r"_cudnn_attention"),
    Rule("attention_flex", r"flex_attention|triton_tem_fused.*_flex"),
    Rule("attention_efficient", r"fmha_cutlass|PyTorchMemEffAttention", r"_efficient_attention"),
    Rule("attention_flash", r"flash_(fwd|bwd)|flash::|FlashAttn", r"_flash_attention"),
    Rule(
        "convolution",
        r"^(?!triton_(?!tem)).*(fprop|dgrad|wgrad|[Cc]onvolution|_conv\dd|winograd|"
        r"cutlass__5x_cudnn|implicit_convolve)",
        r"convolution|_conv\dd",
    ),
    Rule(
        "matmul",
        r"gemm|nvjet|gemv|cublas|^triton_tem_|^cutlass_.*_sm\d\d|^void cutlass::",
        r"^(aten|mkldnn|mkl|onednn)::_?(addmm|mm|bmm|baddbmm|addbmm|mv|addmv|dot|vdot|_scaled_mm|"
        r"mkl_linear|linear_pointwise\w*|int_mm|grouped_mm|_foreach_addmm)\b",
    ),
    Rule("indexing", r"^triton_.*(embedding_dense_backward|index_put|scatter)"),
    Rule("fused", r"^triton_(?!.*log_softmax).*nll_loss"),
    Rule(
        "loss",
        r"log_?softmax|nll_loss|cross_entropy|mse_loss|smooth_l1|binary_cross|LogSoftMax",
        r"log_softmax|nll_loss|cross_entropy|mse_loss|smooth_l1|binary_cross|l1_loss|kl_div",
    ),
    Rule(
        "optimizer",
        r"^triton_for_|multi_tensor_apply|[Ff]used_?[Aa]dam|[Ff]used_?[Ss]gd",
        r"_foreach_|_fused_(adam|sgd|adagrad)",
    ),
    Rule(
        "attention_math",
        r"(?<!prepare)_(safe_)?softmax(?!_online)|^void .*(softmax_warp|SoftMax)",
        r"::_?(safe_)?softmax",
    ),
    Rule(
        "copies", r"^triton_\w+?_fused(__to_copy|_clone|_copy|_t|_transpose|_view|_permute)+_\d+$"
    ),
    Rule("fused", r"^triton_|^CompiledFxGraph"),
    Rule(
        "random",
        r"distribution_|[Pp]hilox|dropout|bernoulli|curand",
        r"dropout|bernoulli|::(rand|normal_|uniform_|random_|exponential_)",
    ),
    Rule(
        "normalisation",
        r"layer_?norm|batch_?norm|group_?norm|rms_?norm|GammaBeta|RowwiseMoments"
        r"|bn_(fw|bw)|instance_?norm",
        r"(layer|batch|group|instance|rms)_norm",
    ),
    Rule(
        "indexing",
        r"embedding|[Ii]ndex_?([Ss]elect|[Pp]ut|[Ff]ill|[Ff]unc|elementwise|ing)"
        r"|gather|scatter"
        r"|compute_grad_weight|krn_partial|_partial_segments|::cub::|radix_sort|topk",
        r"embedding|::(_?index|gather|scatter|_unsafe_index|masked_scatter|sort|topk|"
        r"nonzero|unique|one_hot|take)",
    ),
    Rule(
        "copies",
        r"_copy_kernel|CatArray|copy_device_to_device",
        r"::(copy_|_to_copy|clone|contiguous|cat|stack|_foreach_copy_|pad|constant_pad_nd|repeat)",
    ),
    Rule(
        "bookkeeping",
        None,
        r"::(view|as_strided|_?reshape|_reshape_alias|expand|t|transpose|permute|slice|select|"
        r"squeeze|unsqueeze|empty\w*|new_empty\w*|_unsafe_view|detach_?|alias|split\w*|unbind|"
        r"chunk|narrow|resize_?|result_type|to|type_as|lift_fresh|linear|matmul|einsum|"
        r"resolve_(conj|neg)|item|_local_scalar_dense|set_|unflatten|flatten|contiguous|"
        r"scaled_dot_product_attention|_scaled_dot_product\w*|record_stream|is_nonzero|"
        r"set_data|size|stride|numel|movedim|swapaxes|_has_compatible_shallow_copy_type)$",
    ),
    Rule(
        "elementwise",
        r"elementwise_kernel|reduce_kernel|_kernel_cuda|tensor_kernel_scan"
        r"|triu_tril|roll_cuda|(max|avg|average)_?pool|upsample_",
        r"^(aten|prims|mkldnn)::_?(add|sub|rsub|mul|div|floor_divide|remainder|fmod|neg|abs|sign|"
        r"pow|square|sqrt|rsqrt|reciprocal|exp|expm1|log|log2|log1p|sin|cos|tanh|sigmoid|erf|gelu|"
        r"relu|leaky_relu|silu|mish|elu|hardtanh|hardswish|hardsigmoid|softplus|threshold|clamp|"
        r"maximum|minimum|max|min|amax|amin|argmax|argmin|sum|mean|var|std|norm|prod|cumsum|any|all|"
        r"eq|ne|lt|le|gt|ge|isnan|isinf|isneginf|isfinite|logical_\w+|bitwise_\w+|addcmul|addcdiv|"
        r"lerp|where|masked_fill|fill|zero|zeros|ones|full|arange|linspace|tril|triu|fma|floor|ceil|round|trunc|"
        r"masked_scale|linalg_vector_norm|max_pool\d?d?\w*|avg_pool\d?d?|adaptive_avg_pool\d?d?|"
        r"upsample\w*|roll|flip|outer|native_norm|linear_backward\w*)"
        r"(_|_like|_backward|_with_indices|_dim)?_?$",
    ),
)
_COMPILED = tuple(
    (rule, re.compile(rule.name) if rule.name else None, re.compile(rule.op) if rule.op else None)
    for rule in RULES
)
_OF_NVJET = {"t": "bf16", "h": "fp16", "s": "tf32", "q": "fp8", "r": "fp8", "d": "float64"}
"""Element type of the inputs of cuBLAS's kernels, by the first letter after `nvjet_sm90_`."""
_PRECISIONS = (
    ("tf32", re.compile(r"tf32|(?<!\d)s1688gemm|(?<!\d)s1688(?=\D)")),
    ("bf16", re.compile(r"bf16|bfloat16")),
    ("fp8", re.compile(r"e4m3|e5m2|fp8")),
    ("fp16", re.compile(r"(?<!b)f16|__half|[hs](884|1688|16816)(?!\d)|hgemm|fp16")),
    ("float64", re.compile(r"dgemm|f64|d884")),
    ("float32", re.compile(r"sgemm|f32f32_f32|simt_s|float")),
)


def classify(name: str, op: str | None, phase: str | None, dtype: str | None) -> str:
    """The class of a kernel or of a CPU operator: a key of `CLASSES`.

    `op` is the operator that started it, `phase` the part of the step, `dtype` the element type of
    the operator's inputs; each is None if unknown.
    """
    rule = first_rule(name, op)
    return "other" if rule is None else _refined(rule.work_class, name, phase, dtype)


def first_rule(name: str, op: str | None) -> Rule | None:
    """The first matching rule; None if no rule matches."""
    for rule, of_name, of_op in _COMPILED:
        if (of_name and of_name.search(name)) or (of_op and op and of_op.search(op)):
            return rule
    return None


def _refined(work_class: str, name: str, phase: str | None, dtype: str | None) -> str:
    if work_class == "matmul":
        known = precision(name, dtype)
        return f"matmul_{known}" if known else "matmul"
    # Computations of an optimizer without its own kernels.
    if phase == "optimizer" and work_class in ("elementwise", "copies", "attention_math"):
        return "optimizer"
    return work_class


def precision(name: str, dtype: str | None) -> str | None:
    """Element type of a matrix product's inputs; None if unknown."""
    jet = re.match(r"nvjet_(?:sm\d+_)?([a-z])", name)
    if jet:
        return _OF_NVJET.get(jet[1])
    # The name of a CPU operator has no precision, so the type of its inputs counts.
    precisions = (kind for kind, pattern in _PRECISIONS if pattern.search(name))
    return next(precisions, dtype)
