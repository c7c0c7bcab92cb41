"""Which class a kernel or an operator belongs to: one example of each rule at least, real names."""

import pytest

from breakeven.storage.profile.kernel_classes import (
    CLASSES,
    FUSED_ATTENTION,
    RULES,
    classify,
    first_rule,
)
from tests.helpers.profiles.recorded import names, recorded

EXAMPLES: list[tuple[str, str | None, str | None, str | None, str]] = [
    # name, operator, phase, element type, class
    (
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgs)",
        None,
        None,
        None,
        "communication",
    ),
    ("Memcpy HtoD (Pageable -> Device)", "aten::copy_", "forward", "float32", "transfers"),
    ("Memcpy DtoH (Device -> Pinned)", "aten::_local_scalar_dense", "forward", None, "transfers"),
    ("Memcpy DtoD (Device -> Device)", "aten::copy_", "forward", "float32", "copies"),
    ("Memset (Device)", "aten::sum", "backward", "bf16", "copies"),
    (
        "void cudnn::engines_precompiled::nchwToNhwcKernel<__nv_bfloat16, __nv_bfloat16, float>",
        "aten::cudnn_convolution",
        "forward",
        "bf16",
        "copies",
    ),
    (
        "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64",
        None,
        None,
        None,
        "attention_cudnn",
    ),
    ("triton_tem_fused_flex_attention_0", None, None, None, "attention_flex"),
    (
        "fmha_cutlassB_f32_aligned_64x64_k64_sm80(PyTorchMemEffAttention::Params)",
        None,
        None,
        None,
        "attention_efficient",
    ),
    (
        "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>",
        None,
        None,
        None,
        "attention_flash",
    ),
    (
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "forward",
        "float32",
        "attention_flash",
    ),
    (
        "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized_bf16_128x128>",
        None,
        None,
        None,
        "convolution",
    ),
    ("triton_poi_fused__to_copy_convolution_2", None, None, None, "fused"),
    (
        "void at::native::elementwise_kernel<128, 2, gpu_kernel_impl_nocast<at::native::"
        "direct_copy_kernel_cuda(at::TensorIteratorBase&)>>",
        "aten::addmm",
        "forward",
        "float32",
        "copies",
    ),
    (
        "void at::native::elementwise_kernel<128, 2, (anonymous namespace)::where_kernel_impl>",
        "aten::where",
        "backward",
        "float32",
        "elementwise",
    ),
    ("aten::mkldnn_convolution", "aten::mkldnn_convolution", "forward", "float32", "convolution"),
    ("nvjet_sm90_tst_192x128_64x5_1x2_h_bz_coopB_bias_TNT", None, None, None, "matmul_bf16"),
    ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT", None, None, None, "matmul_fp16"),
    (
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_ffma_execute",
        "aten::bmm",
        "forward",
        "float32",
        "matmul_float32",
    ),
    (
        "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x16_stage4_tensor16x8x8",
        "aten::mm",
        "forward",
        "float32",
        "matmul_tf32",
    ),
    (
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>",
        None,
        None,
        None,
        "matmul_float32",
    ),
    (
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x256_64x3_nn_align2>",
        None,
        None,
        None,
        "matmul_bf16",
    ),
    (
        "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4>",
        None,
        None,
        None,
        "matmul_tf32",
    ),
    (
        "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn",
        None,
        None,
        None,
        "matmul_fp16",
    ),
    (
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float>",
        None,
        None,
        None,
        "matmul_bf16",
    ),
    ("aten::addmm", "aten::addmm", "forward", "float32", "matmul_float32"),
    ("mkldnn::_linear_pointwise", "mkldnn::_linear_pointwise", "forward", "bf16", "matmul_bf16"),
    ("triton_tem_fused_mm_t_3", None, None, None, "matmul"),
    (
        "triton_poi_fused_add_embedding_dense_backward_expand_nll_loss_forward_permute_26",
        None,
        None,
        None,
        "indexing",
    ),
    ("triton_per_fused_add_div_mul_nll_loss_forward_pow_sum_view_23", None, None, None, "fused"),
    ("triton_red_fused__log_softmax_prepare_softmax_online_10", None, None, None, "loss"),
    (
        "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, "
        "float>",
        "aten::nll_loss_forward",
        "forward",
        "float32",
        "loss",
    ),
    (
        "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, float, "
        "c10::BFloat16, at::native::LogSoftMaxForwardEpilogue>",
        "aten::_log_softmax",
        "forward",
        "bf16",
        "loss",
    ),
    ("triton_for_fused_3", None, None, None, "optimizer"),
    (
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<3>>",
        "aten::_foreach_addcmul_",
        "optimizer",
        None,
        "optimizer",
    ),
    (
        "void at::native::elementwise_kernel<128, 2, gpu_kernel_impl_nocast<DivFunctor<float>>>",
        "aten::div_",
        "optimizer",
        "float32",
        "optimizer",
    ),
    ("triton_per_fused__softmax_backward_data_view_12", None, None, None, "attention_math"),
    (
        "triton_per_fused__safe_softmax_add_arange_exp_expand_ge_prepare_softmax_online_4",
        None,
        None,
        None,
        "attention_math",
    ),
    (
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>",
        "aten::_softmax",
        "forward",
        "float32",
        "attention_math",
    ),
    ("triton_poi_fused__to_copy_t_7", None, None, None, "copies"),
    ("triton_poi_fused_gelu_gelu_backward_view_6", None, None, None, "fused"),
    ("CompiledFxGraph foihcyjn", None, "forward", None, "fused"),
    (
        "void at::native::(anonymous namespace)::fused_dropout_kernel_vec<float, float>",
        "aten::native_dropout",
        "forward",
        "float32",
        "random",
    ),
    ("aten::bernoulli_", "aten::bernoulli_", "forward", "float32", "random"),
    (
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float, false>",
        "aten::native_layer_norm",
        "forward",
        "float32",
        "normalisation",
    ),
    ("aten::native_batch_norm", "aten::native_batch_norm", "forward", "float32", "normalisation"),
    (
        "void at::native::(anonymous namespace)::compute_grad_weight_atomic_accumulate<float, "
        "float>",
        "aten::embedding_dense_backward",
        "backward",
        "float32",
        "indexing",
    ),
    (
        "void at::native::indexFuncLargeIndex<c10::BFloat16, long, unsigned int, 2, 2, -2, true, "
        "at::native::ReduceAdd>",
        None,
        None,
        None,
        "indexing",
    ),
    (
        "void at::native::(anonymous namespace)::indexSelectSmallIndex<float, long, unsigned "
        "int, 2, "
        "2, -2>",
        None,
        None,
        None,
        "indexing",
    ),
    (
        "void at::native::triu_tril_kernel<bool, int, false, 4, true>",
        None,
        None,
        None,
        "elementwise",
    ),
    (
        "void at::native::(anonymous namespace)::max_pool_backward_nhwc<float, float>",
        None,
        None,
        None,
        "elementwise",
    ),
    (
        "void at_cuda_detail::cub::detail::radix_sort::DeviceRadixSortOnesweepKernel<>",
        None,
        None,
        None,
        "indexing",
    ),
    (
        "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(",
        "aten::copy_",
        "backward",
        "float32",
        "copies",
    ),
    (
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<OpaqueType<2u>, unsigned "
        "int, 4>",
        "aten::cat",
        "forward",
        "bf16",
        "copies",
    ),
    ("aten::as_strided", "aten::as_strided", "forward", "float32", "bookkeeping"),
    (
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>",
        "aten::add",
        "forward",
        "float32",
        "elementwise",
    ),
    (
        "void at::native::reduce_kernel<128, 4, at::native::ReduceOp<c10::BFloat16>>",
        "aten::sum",
        "backward",
        "bf16",
        "elementwise",
    ),
    ("prims::fma", "prims::fma", "forward", "float32", "elementwise"),
    ("my_company_kernel_v3", "mylib::attend", "forward", "bf16", "other"),
]


@pytest.mark.parametrize(("name", "op", "phase", "dtype", "work_class"), EXAMPLES)
def test_a_name_tells_the_class(
    name: str, op: str | None, phase: str | None, dtype: str | None, work_class: str
) -> None:
    assert classify(name, op, phase, dtype) == work_class


def test_every_rule_has_an_example_that_no_earlier_rule_takes() -> None:
    taken = {first_rule(name, op) for name, op, *_ in EXAMPLES}
    assert set(RULES) <= taken


@pytest.mark.parametrize("name", names())
def test_no_more_than_three_percent_of_a_recorded_profile_is_unknown(name: str) -> None:
    assert recorded(name).unknown_share < 0.03


def test_where_attention_went_can_be_read_from_the_classes() -> None:
    """BERT in bf16: one fused kernel without a compiler; products in float32 and a softmax under
    Inductor. Seconds as an independent look at the names in the recording adds them up."""
    before = recorded("BertForMaskedLM.baseline").by_class
    after = recorded("BertForMaskedLM.inductor").by_class
    fused = list(FUSED_ATTENTION)
    assert before[fused].sum() > 0 and before["matmul_float32"] == 0
    assert after[fused].sum() == 0 and after["attention_math"] > 0
    rows = recorded("BertForMaskedLM.inductor").kernels
    by_name = rows[rows["name"].str.contains("gemm_f32f32_f32f32_f32|simt_sgemm")]["seconds"].sum()
    assert after["matmul_float32"] == pytest.approx(by_name)


def test_every_class_has_a_name_for_people() -> None:
    assert {rule.work_class for rule in RULES} <= set(CLASSES)
    assert len(set(CLASSES.values())) == len(CLASSES)
