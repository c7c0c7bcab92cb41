"""The most floating-point operations per second that known devices can do, by their data sheets.

Dense: sheets print tensor core figures with structured sparsity, which doubles them, and these are
halved here. Matrix products with float32 accumulation, as torch does them. Boost clocks; a device
that is held to less power does less.
"""

from fnmatch import fnmatchcase

from breakeven.runner.specs.training import Precision

TERA = 1e12
PRECISIONS: tuple[Precision, ...] = ("float32", "tf32", "bf16", "fp16")

A100 = (19.5, 156, 312, 312)
H100_SXM = (67, 494.7, 989.4, 989.4)
H100_NVL = (60, 417.5, 835.5, 835.5)
PEAKS: dict[str, tuple[float | None, ...]] = {
    # Name that CUDA gives the device: TFLOPS in float32 (CUDA cores), TF32, bf16, fp16 (tensor).
    "NVIDIA H100 * HBM3": H100_SXM,  # H100 Tensor Core GPU data sheet, H100 SXM
    "NVIDIA H100 PCIe": (51, 378, 756.5, 756.5),  # H100 Tensor Core GPU data sheet, H100 PCIe
    "NVIDIA H100 NVL": H100_NVL,  # H100 Tensor Core GPU data sheet, H100 NVL
    "NVIDIA H200": H100_SXM,  # H200 Tensor Core GPU data sheet, H200 SXM
    "NVIDIA H200 NVL": H100_NVL,  # H200 Tensor Core GPU data sheet, H200 NVL
    "NVIDIA B200": (75, 1100, 2250, 2250),  # Blackwell data sheet, one GPU of HGX B200
    "NVIDIA A100-*": A100,  # A100 Tensor Core GPU data sheet, alike for SXM and PCIe
    "NVIDIA A100 80GB PCIe": A100,
    "NVIDIA L40S": (91.6, 183, 362, 362),  # L40S data sheet
    "NVIDIA L4": (30.3, 60, 121, 121),  # L4 Tensor Core GPU data sheet
    "NVIDIA A10": (31.2, 62.5, 125, 125),  # A10 Tensor Core GPU data sheet
    "* T4": (8.1, None, None, 65),  # T4 Tensor Core GPU data sheet
    "* V100-SXM2-*": (15.7, None, None, 125),  # V100 Tensor Core GPU data sheet, for NVLink
    "* V100-PCIE-*": (14, None, None, 112),  # V100 Tensor Core GPU data sheet, for PCIe
    "* RTX 4090": (82.6, 82.6, 165.2, 165.2),  # Ada GPU architecture whitepaper, appendix A
    "* RTX 3090": (35.6, 35.6, 71, 71),  # GA102 GPU architecture whitepaper, appendix A
}
"""None where the device has no unit for it. Names stand for whole devices: slices of one (MIG) and
relatives, such as `RTX 4090 Laptop GPU` or `A10G`, are others."""


def peak_flops(device_name: str | None, precision: Precision) -> float | None:
    """Operations per second at most; None for a device that is not listed, such as any CPU."""
    name = device_name or ""
    for pattern, peaks in PEAKS.items():
        if fnmatchcase(name, pattern) and "MIG" not in name.split():
            peak = peaks[PRECISIONS.index(precision)]
            return None if peak is None else peak * TERA
    return None
