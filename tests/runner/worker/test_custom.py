"""Models and samples from users' Python files."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from breakeven.runner.checks.allowed_code import CODE_VARIABLE
from breakeven.runner.errors import WorkloadError
from breakeven.runner.specs.experiment import ExperimentSpec, TrainingSpec
from breakeven.runner.worker.model.loaded_workload import load_workload
from breakeven.runner.worker.model.losses import Objective
from breakeven.runner.worker.model.transformers_models import switch_off_dropout, weights_sha256
from tests.helpers.workloads import spec

OWN = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, outputs=3):
        super().__init__()
        self.normal, self.dropout = nn.BatchNorm1d(4), nn.Dropout(0.5)
        self.linear = nn.Linear(4, outputs)

    def forward(self, x, labels=None):
        return self.linear(self.dropout(self.normal(x)))

def part(count, kind):
    x = torch.randn(count, 4)
    labels = {
        "classes": torch.arange(count, dtype=torch.int32) % 3,
        "numbers": x.sum(1),
        "tokens": torch.arange(count * 2).reshape(count, 2) % 3,
        "negative": torch.full((count,), -1),
        "truth": x[:, 0] > 0,
    }[kind]
    return {"x": x, "labels": labels}

class Items:
    def __init__(self, count): self.count = count
    def __len__(self): return self.count
    def __getitem__(self, index):
        assert index < 10, "only as many as needed are read"
        return {"x": [float(index)] * 4, "labels": index % 3}

def net(): return Net()
def net_of_one(): return Net(1)
def net_with_other_names(): return nn.Linear(4, 3)
def no_net(): return 3

def both(count, kind): return {"train": part(count, kind), "validation": part(6, kind)}
def classes(): return both(12, "classes")
def numbers(): return both(12, "numbers")
def tokens(): return both(12, "tokens")
def negative(): return both(12, "negative")
def truth(): return both(12, "truth")
def few(): return both(9, "classes")
def items(): return {name: Items(100) for name in ("train", "validation", "test")}
def nothing(): return None
def unlabelled(): return {"train": {"x": torch.zeros(12, 4)}, "validation": {}}
def uneven():
    return {"train": {"x": torch.zeros(11, 4), "labels": torch.zeros(12)}, "validation": {}}
def unlike(): return {"train": part(12, "classes"), "validation": part(6, "numbers")}
def words(): return {"train": {"x": ["a"] * 12, "labels": [0] * 12}, "validation": {}}
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "own.py").write_text(OWN)
    monkeypatch.setenv(CODE_VARIABLE, str(tmp_path / "own"))
    return tmp_path / "own" / "own.py"


def own_spec(own: Path, model: str, data: str, **changes: Any) -> ExperimentSpec:
    sizes = {"num_train_samples": 10, "num_eval_samples": 5, "num_test_samples": 0}
    return spec("custom", f"{own}:{model}", f"{own}:{data}", **{**sizes, **changes})


def test_a_model_and_samples_of_ones_own_with_classes(own: Path) -> None:
    loaded = load_workload(own_spec(own, "net", "classes"))
    data = loaded.data
    assert [len(split) for split in data.splits.values()] == [10, 5]  # the first of 12 and of 6
    assert data.train.labels.tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]
    assert (data.labels, data.vocabulary_size, data.test) == (("0", "1", "2"), None, None)
    assert loaded.metrics == ("accuracy", "f1", "precision", "recall", "roc_auc")
    batch = data.train.batch(torch.arange(4))
    total, _ = Objective(TrainingSpec(losses=("CrossEntropyLoss",)), loaded)(
        loaded.model(**batch), batch["labels"]
    )
    assert total.isfinite()


def test_functions_of_ones_own_are_called_with_the_seed_set(own: Path) -> None:
    hashes = []
    for seed in (7, 7, 8):
        spec = own_spec(own, "net", "classes")
        loaded = load_workload(replace(spec, training=TrainingSpec(seed=seed, batch_size=1)))
        hashes.append((loaded.data.sha256, weights_sha256(loaded.model)))
    assert hashes[0] == hashes[1] and not {*hashes[0]} & {*hashes[2]}


def test_samples_with_numbers_are_judged_by_their_errors(own: Path) -> None:
    loaded = load_workload(own_spec(own, "net_of_one", "numbers"))
    assert loaded.metrics == ("mse", "mae") and loaded.data.labels == ()
    assert loaded.data.majority_share is None and not loaded.data.train.can_pad
    batch = loaded.data.train.batch(torch.arange(4))
    answers = loaded.model.eval()(**batch)  # (4, 1), and labels are (4,)
    total, _ = Objective(TrainingSpec(losses=("MSELoss",)), loaded)(answers, batch["labels"])
    assert total.item() == pytest.approx((answers[:, 0] - batch["labels"]).square().mean().item())


def test_samples_with_a_class_for_each_token_are_judged_like_language(own: Path) -> None:
    loaded = load_workload(own_spec(own, "net", "tokens"))
    assert loaded.metrics == ("accuracy", "perplexity")
    assert loaded.data.train.num_targets.tolist() == [2] * 10


def test_a_data_set_of_single_samples_is_read_as_far_as_needed(own: Path) -> None:
    loaded = load_workload(own_spec(own, "net", "items", num_test_samples=3))
    assert loaded.data.train.inputs["x"][:, 0].tolist() == list(range(10))
    assert loaded.data.train.labels.tolist()[:4] == [0, 1, 2, 0]
    assert loaded.data.test is not None and len(loaded.data.test) == 3


@pytest.mark.parametrize(
    ("model", "data", "message"),
    [
        ("no_net", "classes", "no_net' returned int; it must return a torch.nn.Module"),
        ("net_with_other_names", "classes", "forward cannot take.*The entries are x, labels"),
        ("net", "nothing", "returned NoneType; it must return a mapping.*train, validation"),
        ("net", "few", "train samples: there are 9, but 10 are requested"),
        ("net", "unlabelled", "must be an entry 'labels'.*there is x"),
        ("net", "uneven", r"different numbers of samples: {'x': 11, 'labels': 12}"),
        ("net", "unlike", r"of validation is labels \(\) float32.*of train is labels \(\) int64"),
        ("net", "negative", "a label is -1; classes are numbered from 0"),
        ("net", "truth", "labels are torch.bool; they must be whole numbers"),
        ("net", "words", "neither a mapping from names to tensors nor a data set"),
        ("net", "untested", r"returned train, validation; it must.*validation, test"),
    ],
)
def test_what_functions_return_must_fit(own: Path, model: str, data: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        load_workload(
            own_spec(
                own,
                model,
                data.replace("untested", "classes"),
                num_test_samples=3 * (data == "untested"),
            )
        )


def test_dropout_can_be_taken_from_a_model_of_ones_own_and_no_module_of_torch_keeps_it(
    own: Path,
) -> None:
    for dropout, expected in (("off", 0), ("keep", 0.5)):
        model: Any = load_workload(own_spec(own, "net", "classes", dropout=dropout)).model
        assert model.dropout.p == expected
    model = nn.ModuleList(
        [
            nn.TransformerEncoderLayer(8, 2, dim_feedforward=8, dropout=0.3, batch_first=True),
            nn.LSTM(8, 8, num_layers=2, dropout=0.3, batch_first=True),
            nn.AlphaDropout(0.3),
        ]
    )
    switch_off_dropout(model)
    model.train()
    x = torch.randn(2, 3, 8)
    for module in model:
        first, again = (module(x) for _ in range(2))
        first, again = (y[0] if isinstance(y, tuple) else y for y in (first, again))
        assert torch.equal(first, again)
