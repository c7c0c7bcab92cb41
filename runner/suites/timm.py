"""Models of timm, in the sizes of the Dynamo harness's `timm_models.py`."""

from breakeven.runner.suites.suite_matrix import Suite, SuiteModel

BATCH_SIZES = {
    "adv_inception_v3": 128,
    "beit_base_patch16_224": 64,
    "convnextv2_nano.fcmae_ft_in22k_in1k": 128,
    "deit_base_distilled_patch16_224": 64,
    "deit_tiny_patch16_224.fb_in1k": 128,
    "dm_nfnet_f0": 128,
    "ghostnet_100": 512,
    "inception_v3": 128,
    "mobilenetv2_100": 128,
    "mobilenetv3_large_100": 512,
    "mobilevit_s": 64,
    "nfnet_l0": 128,
    "repvgg_a2": 128,
    "swin_base_patch4_window7_224": 64,
    "tf_efficientnet_b0": 128,
    "visformer_small": 128,
    "vit_base_patch14_dinov2.lvd142m": 128,
    "vit_base_patch16_siglip_256": 128,
}
"""Batch sizes of the harness, after its divisions."""
TRAINED_BY_SGD = ("adv_inception_v3", "ghostnet_100", "tf_efficientnet_b0")
"""`BENCHMARK_USE_SGD` of the harness."""
CHECKED_BY_SGD = ("convnextv2_nano.fcmae_ft_in22k_in1k", "vit_base_patch14_dinov2.lvd142m")
"""`CUDA_INDUCTOR_ACCURACY_USE_SGD` of the harness."""
ACCURACY_BATCH_SIZE = 8
TRAINING_TOLERANCES = {
    "beit_base_patch16_224": 16e-2,
    "deit_base_distilled_patch16_224": 8e-2,
    "inception_v3": 4e-2,
    "mobilenetv3_large_100": 4e-2,
    "vit_base_patch16_siglip_256": 8e-2,
}

SUITE = Suite(
    name="timm",
    text="Image models of timm with random weights; the package timm must be installed.",
    package="timm",
    install="pip install timm torchvision, in versions that fit this torch",
    begin_with=("mobilenetv2_100", "deit_tiny_patch16_224.fb_in1k"),
    models=tuple(
        SuiteModel(
            source=f"timm:{name}",
            batch_size=batch_size,
            accuracy_batch_size=ACCURACY_BATCH_SIZE,
            losses=("CrossEntropyLoss",),
            optimizer="SGD" if name in TRAINED_BY_SGD else None,
            cuda_accuracy_optimizer="SGD" if name in CHECKED_BY_SGD else None,
            tolerances=(
                {"training": TRAINING_TOLERANCES[name]} if name in TRAINING_TOLERANCES else {}
            ),
        )
        for name, batch_size in BATCH_SIZES.items()
    ),
)
