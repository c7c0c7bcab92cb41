"""Models of TorchBench, in the sizes of the Dynamo harness's `torchbench.py`."""

from breakeven.runner.suites.suite_matrix import PARTS, Suite, SuiteModel

BATCH_SIZES = {
    "BERT_pytorch": 128,
    "Background_Matting": 16,
    "LearningToPaint": 1024,
    "alexnet": 1024,
    "dcgan": 1024,
    "densenet121": 64,
    "llama": 32,
    "mnasnet1_0": 256,
    "mobilenet_v2": 128,
    "mobilenet_v3_large": 256,
    "moco": 32,
    "nanogpt": 1,
    "nvidia_deeprecommender": 1024,
    "pytorch_unet": 8,
    "resnet18": 512,
    "resnet50": 128,
    "resnext50_32x4d": 128,
    "shufflenet_v2_x1_0": 512,
    "squeezenet1_1": 512,
    "vgg16": 128,
}
"""Default batch sizes of the models in the harness's `torchbench_models_list.txt`, and of further
models in cachebench."""
ACCURACY_BATCH_SIZE = 4
INFERENCE_ONLY = ("llama",)
TRAINED_BY_SGD = (
    "BERT_pytorch",
    "LearningToPaint",
    "alexnet",
    "dcgan",
    "densenet121",
    "mobilenet_v2",
    "resnet18",
    "shufflenet_v2_x1_0",
    "squeezenet1_1",
    "vgg16",
)
"""`BENCHMARK_USE_SGD` of the harness."""
WIDER_TRAINING_TOLERANCE = ("squeezenet1_1", "shufflenet_v2_x1_0")

SUITE = Suite(
    name="torchbench",
    text="Models of TorchBench; the package torchbenchmark must be installed with each of them.",
    package="torchbenchmark",
    install="clone https://github.com/pytorch/benchmark, run python install.py MODEL in it and put "
    "its folder on PYTHONPATH",
    has_strict_tolerances=True,
    begin_with=("resnet18", "BERT_pytorch"),
    models=tuple(
        SuiteModel(
            source=f"torchbench:{name}",
            batch_size=batch_size,
            accuracy_batch_size=min(ACCURACY_BATCH_SIZE, batch_size),
            optimizer="SGD" if name in TRAINED_BY_SGD else None,
            tolerances={"cuda training": 8e-2} if name in WIDER_TRAINING_TOLERANCE else {},
            parts=("inference",) if name in INFERENCE_ONLY else PARTS,
        )
        for name, batch_size in BATCH_SIZES.items()
    ),
)
