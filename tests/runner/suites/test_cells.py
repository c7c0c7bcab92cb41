"""Suites: which cells there are, in the harness's sizes, and queueing only what is missing."""

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from breakeven.runner.commands import cli
from breakeven.runner.commands.suites import read_cells
from breakeven.runner.errors import InvalidSpec
from breakeven.runner.experiments.queue import experiments, find_experiment, submit
from breakeven.runner.files import FileLock
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.records import Claim, Exit
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.fields import Spec
from breakeven.runner.specs.workload import SUITE_SOURCES
from breakeven.runner.suites import SUITES
from tests.helpers.journals import GONE
from tests.helpers.machine import MACHINE, keep

pytestmark = pytest.mark.heavy

NAMED = "BertForMaskedLM,GPT2ForSequenceClassification"


def cells(*arguments: str, suite: str = "huggingface", run: str = "r") -> list[ExperimentSpec]:
    options = cli.parser().parse_args(["queue", "suite", suite, f"--run={run}", *arguments])
    return read_cells(options)[1]


def test_models_have_the_sizes_of_the_harness() -> None:
    sizes = {
        "BertForMaskedLM": (16, 512),  # 32 / 2
        "DistilBertForMaskedLM": (128, 128),  # 256 / 2; no rule has its name
        "GPT2ForSequenceClassification": (4, 1024),  # 8 / 2
        "BlenderbotForCausalLM": (4, 128),  # 32 / 8
        "OPTForCausalLM": (2, 2048),  # 4 / 2
        "MT5ForConditionalGeneration": (16, 128),  # begins with MT5, not T5
        "T5Small": (4, 1024),
        "MBartForConditionalGeneration": (4, 1024),  # undivided
        "TrOCRForCausalLM": (32, 256),
        "MegatronBertForCausalLM": (4, 512),
        "AllenaiLongformerBase": (4, 1024),
    }
    chosen = SUITES["huggingface"].choose(list(sizes))
    assert {model.name: (model.batch_size, model.sequence_length) for model in chosen} == sizes


def test_every_combination_is_an_experiment_of_its_own_that_names_every_backend() -> None:
    planned = cells(f"--models={NAMED}", "--precision=float32,bf16", "--backends=eager,inductor")
    assert len(planned) == len({cell.name for cell in planned}) == 2 * 2 * 2 * 2
    combinations = {
        (
            cell.model.source,
            cell.training.precision,
            cell.scenario,
            cell.speed.part if cell.scenario == "speed" else cell.accuracy.parts[0],
        )
        for cell in planned
    }
    assert len(combinations) == 16
    assert {cell.backends for cell in planned} == {("eager", "inductor")}
    assert {cell.suite_run for cell in planned} == {"r"}


def test_speed_takes_the_whole_batch_and_accuracy_one_sample_at_the_harness_tolerance() -> None:
    by_part = {(cell.scenario, cell.trains): cell for cell in cells("--models=BertForMaskedLM")}
    speed, accuracy = by_part["speed", True], by_part["accuracy", True]
    assert (speed.training.batch_size, speed.data.sequence_length) == (16, 512)
    assert speed.data.num_train_samples == 16 * speed.speed.batches
    assert (accuracy.training.batch_size, accuracy.data.num_train_samples) == (1, 1)
    assert accuracy.accuracy.tolerance == 2e-2
    assert by_part["accuracy", False].accuracy.tolerance is None
    # A tolerance may hold on one device only.
    options = (
        "--models=GPT2ForSequenceClassification",
        "--scenarios=accuracy",
        "--parts=inference",
    )
    assert [cell.accuracy.tolerance for cell in cells(*options)] == [5e-3]
    assert [cell.accuracy.tolerance for cell in cells(*options, "--device=cuda:0")] == [4e-3]


@pytest.mark.parametrize(
    ("suite", "model", "device", "expected"),
    [
        ("huggingface", "MobileBertForMaskedLM", "cpu", {"accuracy": "none", "speed": "none"}),
        ("huggingface", "OPTForCausalLM", "cpu", {"accuracy": "SGD", "speed": "SGD"}),
        ("huggingface", "BertForMaskedLM", "cuda:0", {"accuracy": "Adam", "speed": "Adam"}),
        ("timm", "ghostnet_100", "cuda:0", {"accuracy": "SGD", "speed": "SGD"}),
        ("timm", "vit_base_patch14_dinov2.lvd142m", "cuda:0", {"accuracy": "SGD", "speed": "Adam"}),
        ("timm", "vit_base_patch14_dinov2.lvd142m", "cpu", {"accuracy": "Adam", "speed": "Adam"}),
        ("torchbench", "resnet18", "cpu", {"accuracy": "SGD", "speed": "SGD"}),
    ],
)
def test_a_model_is_trained_by_the_optimizer_of_the_harness(
    suite: str, model: str, device: str, expected: dict[str, str]
) -> None:
    options = (f"--models={model}", "--parts=training", f"--device={device}")
    optimizers = {cell.scenario: cell.training.optimizer for cell in cells(*options, suite=suite)}
    assert optimizers == expected


def test_the_optimizer_of_the_harness_is_for_trainings_that_ask_for_no_other() -> None:
    options = ("--models=MobileBertForMaskedLM", "--parts=training")

    def optimizers(*words: str) -> set[str]:
        return {cell.training.optimizer for cell in cells(*words)}

    assert optimizers(*options, "--optimizer=AdamW") == {"AdamW"}
    assert optimizers(*options, "--settings=plain") == {"Adam"}
    assert optimizers(options[0], "--parts=inference") == {"Adam"}


def test_requested_sizes_replace_those_of_all_cells() -> None:
    small = ("--shrink=16", "--batch-size=2", "--sequence-length=32", "--set=speed.batches=3")
    for cell in cells(f"--models={NAMED}", *small):
        assert cell.training.batch_size == 2
        assert cell.model.source.endswith("/16") and "/16, float32" in cell.name
        assert cell.data.sequence_length == 32
        assert cell.data.num_train_samples == (6 if cell.scenario == "speed" else 2)


def test_without_names_all_models_take_part_that_the_harness_runs() -> None:
    options = ("--scenarios=accuracy", "--parts=training")
    sources = {cell.model.source for cell in cells(*options)}
    assert len(sources) == 48 - 5
    assert "huggingface:GPTJForCausalLM" not in sources
    assert len(cells(*options, "--models=GPTJForCausalLM")) == 1


def test_a_suite_names_two_of_its_models_to_begin_with_as_specifications_name_them() -> None:
    for suite in SUITES.values():
        chosen = suite.choose(suite.begin_with)
        assert len({model.name for model in chosen}) == 2, suite.name
        assert not any(model.skipped for model in chosen), suite.name
    named = {model.source.partition(":")[0] for suite in SUITES.values() for model in suite.models}
    assert named == set(SUITE_SOURCES)


def test_cachebench_times_compiling_cold_and_warm() -> None:
    planned = cells(suite="cachebench")
    assert {cell.scenario for cell in planned} == {"cache"}
    assert {cell.steps_per_epoch for cell in planned} == {10}, "no turn is cut short by an epoch"
    names: dict[str, list[str]] = {"training": [], "inference": []}
    for cell in planned:
        names[cell.cache.part].append(cell.model.source.partition(":")[2])
    assert names["inference"] == [
        "nanogpt",
        "BERT_pytorch",
        "resnet50",
        "moco",
        "llama",
        "AllenaiLongformerBase",
        "BertForMaskedLM",
        "GPT2ForSequenceClassification",
    ]
    assert set(names["inference"]) - set(names["training"]) == {"llama"}, "made for inference only"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--models=BertForMasked"], r"is not in the suite huggingface: its models are Albert"),
        (["--models=openai/gpt-oss-20b"], r"weights of the hub"),
        (["--precision=fp8"], r"precision = \('fp8',\): must name at least one of float32"),
        (["--parts=training,training"], "none of them twice"),
        (["--scenarios=train"], "must name at least one of accuracy, speed, cache"),
        (["--run=a b"], "must be letters"),
        (["--shrink=0"], "shrink = 0: must be at least 1"),
        (["--shrink=10000"], "must be at most 9,999: no model has more layers"),
    ],
)
def test_what_cannot_be_is_refused_with_its_name(arguments: Sequence[str], said: str) -> None:
    with pytest.raises(InvalidSpec, match=said):
        cells(*arguments)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"task": "suite"}, "must be a model of a benchmark suite"),
        ({"model": {"source": "timm:resnet18"}}, "and only then"),
        ({"data": {"source": "builtin:random"}}, "and only then"),
        (
            {"task": "suite", "model": {"source": "timm:resnet18/2"}},
            "must be a name such as timm:resnet18",
        ),
        (
            {"task": "suite", "model": {"source": "huggingface:a b"}},
            "must be a name such as huggingface:Bert",
        ),
    ],
)
def test_a_suite_model_stands_with_its_task_and_random_samples(
    changes: dict[str, Spec], said: str
) -> None:
    with pytest.raises(InvalidSpec, match=said):
        ExperimentSpec.from_dict({"name": "x", **changes})


@pytest.fixture
def data_dir(tmp_path: Path) -> DataDir:
    """An empty data folder that knows this machine."""
    data_dir = DataDir(tmp_path / "data")
    data_dir.path.mkdir()
    keep(data_dir, MACHINE)
    return data_dir


def command(data_dir: DataDir, *arguments: str) -> int:
    return cli.main(
        [
            "queue",
            "suite",
            "huggingface",
            f"--data-folder={data_dir.path}",
            "--run=nightly",
            "--backends=eager",
            "--scenarios=speed",
            "--parts=training",
            *arguments,
        ]
    )


def end_all(data_dir: DataDir, experiment_id: str, state: RunState) -> None:
    for run in find_experiment(data_dir, experiment_id).runs:
        run.write_exit(Exit.now(state, "as the test says", 0))


def test_asking_again_queues_only_what_is_missing_or_failed(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(data_dir, f"--models={NAMED}") == 0
    bert, gpt = [line.split()[0] for line in capsys.readouterr().out.splitlines()[:2]]
    assert command(data_dir, f"--models={NAMED}") == 0
    waits = f"; `breakeven queue start --data-folder={data_dir.path}` runs the queue"
    assert capsys.readouterr().out == f"suite run nightly: 0 of 2 experiments queued{waits}\n"
    vanished = find_experiment(data_dir, gpt).runs[0]
    vanished.write_claim(replace(Claim.by(GONE), supervisor=GONE))
    assert vanished.state is RunState.LOST
    assert command(data_dir, f"--models={NAMED}") == 0
    assert "0 of 2" in capsys.readouterr().out, "the next supervisor has it begin anew"

    end_all(data_dir, bert, RunState.FINISHED)
    end_all(data_dir, gpt, RunState.FAILED)
    lock = FileLock(data_dir.supervisor_lock)
    assert lock.try_acquire()
    with lock:
        command(data_dir, f"--models={NAMED},DistilBertForMaskedLM")
    *queued, last = capsys.readouterr().out.splitlines()
    assert [line.split(maxsplit=1)[1] for line in queued] == [
        "GPT2ForSequenceClassification, float32, training, speed",
        "DistilBertForMaskedLM, float32, training, speed",
    ]
    assert last == "suite run nightly: 2 of 3 experiments queued", "a supervisor runs them already"


def test_a_cell_that_was_repeated_run_by_run_is_not_queued_again(data_dir: DataDir) -> None:
    options = ("--scenarios=speed", "--parts=training", "--models=BertForMaskedLM")
    (cell,) = cells(*options, "--backends=eager", run="nightly")
    first = submit(data_dir, cell)
    end_all(data_dir, first, RunState.CANCELLED)
    repeat = submit(data_dir, replace(cell, schedule="sequential", fallback_of=first))
    end_all(data_dir, repeat, RunState.FINISHED)
    assert command(data_dir, "--models=BertForMaskedLM") == 0
    assert len(list(experiments(data_dir))) == 2


@pytest.mark.skipif(find_spec("timm") is not None, reason="timm is installed here")
def test_nothing_is_queued_whose_package_is_not_installed(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = f"--data-folder={data_dir.path}"
    assert cli.main(["queue", "suite", "timm", folder, "--backends=eager"]) == cli.BAD_INPUT
    said = capsys.readouterr().err
    assert "needs the package timm, which is not installed here: pip install timm" in said
    assert list(experiments(data_dir)) == []
