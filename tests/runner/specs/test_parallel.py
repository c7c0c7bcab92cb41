"""The rules of one run on several devices."""

from typing import Any

import pytest

from breakeven.runner.errors import InvalidSpec
from breakeven.runner.specs.experiment import (
    CacheSpec,
    DataSpec,
    ExperimentSpec,
    SpeedSpec,
    TrainingSpec,
)
from breakeven.storage.library.summary import workload_key

CUDA = ("cuda:0", "cuda:1")
TWO: dict[str, Any] = {"name": "two", "devices": ("cpu", "cpu")}
MANY: dict[str, Any] = {"devices": CUDA, "nodes": 2}


def test_several_devices_of_a_kind_are_one_run_of_as_many_ranks() -> None:
    assert ExperimentSpec(name="one").num_ranks == 1
    assert ExperimentSpec(name="one", parallel="fsdp").place == "cpu"
    two = ExperimentSpec(**TWO)
    assert (two.num_ranks, two.device, two.place) == (2, "cpu", "2 x cpu, ddp")
    on_cuda = ExperimentSpec(name="two", devices=("cuda:0", "cuda:2"), parallel="fsdp")
    assert (on_cuda.num_ranks, on_cuda.place) == (2, "cuda:0 + cuda:2, fsdp")
    copying = ExperimentSpec(name="two", devices=("cuda:0", "cuda:1"), parallel="dp", backends=())
    assert copying.num_ranks == 1


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"devices": ("cpu",) * 65}, "devices = .*must be at most 64"),
        ({"devices": CUDA, "parallel": "dp"}, "runs copies of the model in threads"),
        ({"backends": ("inductor:scope=forward+fullgraph=true",)}, "choose scope=blocks"),
        (
            {"devices": CUDA, "parallel": "fsdp", "training": TrainingSpec(precision="fp16")},
            "precision = 'fp16': does not work with",
        ),
        (
            {
                "training": TrainingSpec(batch_size=8, last_batch="pad"),
                "data": DataSpec(num_train_samples=20),
            },
            "last_batch = 'pad': must be 'drop'",
        ),
        ({"parallel": "dp"}, "parallel = 'dp': .*on CPUs choose 'ddp' or 'fsdp'"),
        ({"scenario": "accuracy"}, "devices = .*compares tensors of one batch"),
        ({"scenario": "speed", "speed": SpeedSpec(part="inference")}, "for inference"),
        ({"scenario": "cache", "cache": CacheSpec(part="inference")}, "for inference"),
        ({"training": TrainingSpec(batch_size=7)}, "batch_size = 7: must be a multiple of 2"),
        (
            {
                "training": TrainingSpec(batch_size=8, last_batch="dynamic"),
                "data": DataSpec(num_train_samples=21),
            },
            "last_batch = 'dynamic': must be 'drop' or 'pad': 2 devices cannot share a batch of 5",
        ),
        ({"devices": ("cpu", "cuda:0")}, "all be of one kind"),
        ({**MANY, "training": TrainingSpec(batch_size=6)}, "multiple of 4"),
        ({**MANY, "parallel": "dp"}, "'ddp' or 'fsdp' on several machines"),
        ({**MANY, "scenario": "accuracy"}, "compares no runs"),
        ({**MANY, "nodes": 33}, "at most 64 devices in all"),
        (
            {"backends": ("inductor:optimize_ddp=python_reducer_without_compiled_forward",)},
            "DistributedDataParallel does not support",
        ),
        ({"backends": ("inductor:optimize_ddp=fast",)}, "optimize_ddp"),
        ({"parallel": "fsdp", "backends": ("inductor:optimize_ddp=python_reducer",)}, "with 'ddp'"),
        (
            {"devices": ("cpu",), "backends": ("inductor:optimize_ddp=no_optimization",)},
            "several devices",
        ),
        (
            {"backends": ("inductor:optimize_ddp=no_optimization+scope=forward+fullgraph=true",)},
            "one graph",
        ),
    ],
)
def test_what_several_devices_cannot_do_is_refused_with_its_reason(
    changes: dict[str, Any], rule: str
) -> None:
    with pytest.raises(InvalidSpec, match=rule):
        ExperimentSpec(**{**TWO, **changes})


def test_times_of_several_devices_are_no_trend_of_one() -> None:
    single, double = ExperimentSpec(name="one"), ExperimentSpec(**TWO)
    sharded = ExperimentSpec(**{**TWO, "parallel": "fsdp"})
    assert len({workload_key(spec) for spec in (single, double, sharded)}) == 3
    assert workload_key(single) == workload_key(ExperimentSpec(name="one", parallel="fsdp"))


def test_devices_of_several_machines_count_together() -> None:
    """Two machines of two devices: the batch is shared by four."""
    spec = ExperimentSpec(name="many", **MANY)
    assert (spec.num_ranks, spec.ranks_per_node, spec.num_devices) == (4, 2, 4)
    assert spec.place == "cuda:0 + cuda:1, 2 machines, ddp"
    assert ExperimentSpec(name="two", nodes=2).place == "cpu, 2 machines, ddp"


def test_a_mode_of_ddp_is_part_of_the_backends_name() -> None:
    text = "inductor:optimize_ddp=python_reducer+scope=forward+fullgraph=true"
    *_, arm = ExperimentSpec(**TWO, backends=(text,)).arms
    assert arm.optimize_ddp == "python_reducer"
    assert arm.label == "inductor-python_reducer-forward-fullgraph_true"
