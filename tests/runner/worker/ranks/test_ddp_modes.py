"""What Dynamo does with DistributedDataParallel: every mode computes the same, and breaks the graph
elsewhere."""

from dataclasses import replace
from pathlib import Path

import pytest

from breakeven.runner.specs.experiment import ModelSpec
from tests.helpers.loop import experiment, of_kind
from tests.runner.worker.ranks.rank_loop import Training, journal_of, train_together
from tests.runner.worker.ranks.test_same_as_alone import ROUNDING, losses

pytestmark = [pytest.mark.heavy, pytest.mark.slow]
WAYS = {
    "split": "aot_eager:optimize_ddp=ddp_optimizer",
    "whole": "aot_eager:optimize_ddp=no_optimization",
    "python": "aot_eager:optimize_ddp=python_reducer",
    "one-graph": "aot_eager:optimize_ddp=python_reducer+scope=forward+fullgraph=true",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("modes")
    spec = replace(
        experiment(model=ModelSpec(dropout="off"), block_steps=6),
        devices=("cpu", "cpu"),
        backends=tuple(WAYS.values()),
    )
    labels = [arm.label for arm in spec.arms if arm.role == "backend"]
    requests = [Training(name, spec, label) for name, label in zip(WAYS, labels, strict=True)]
    train_together(folder, [Training("plain", spec), *requests])
    return folder


def breaks(folder: Path, field: str = "reason", begins: str = "") -> dict[str, int]:
    """How many graph breaks of training each way has whose field begins so."""
    counts = {}
    for name in WAYS:
        events = of_kind(journal_of(folder, name), "graph_break")
        counts[name] = sum(
            event["count"]
            for event in events
            if event["phase"] == "training" and str(event[field]).startswith(begins)
        )
    return counts


@pytest.mark.parametrize("name", WAYS)
def test_every_mode_has_the_losses_of_what_is_not_compiled(folder: Path, name: str) -> None:
    assert of_kind(journal_of(folder, name), "compile_metrics")
    expected = losses(journal_of(folder, "plain"))
    assert losses(journal_of(folder, name)) == pytest.approx(expected, rel=ROUNDING)


def test_only_the_optimizer_splits_at_buckets_and_only_the_python_reducer_is_traced(
    folder: Path,
) -> None:
    """The built-in BERT is larger than the first bucket, of 1 MiB."""
    by_buckets = breaks(folder, "reason", "DDPOptimizer ")
    assert by_buckets.pop("split") > 1 and set(by_buckets.values()) == {0}
    by_ranks = breaks(folder, "stopped_at", "torch/nn/parallel/")
    assert by_ranks["whole"] > 0 and by_ranks["python"] == 0
    assert breaks(folder)["one-graph"] == 0
