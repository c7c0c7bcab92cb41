"""What is best can be used: by lines to paste, or by a diff of a script that `git apply` takes."""

import ast
import runpy
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.specs.backends import parse_backend
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec, TrainingSpec
from breakeven.runner.specs.workload import ScriptSpec
from breakeven.storage.__main__ import main as storage
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.plan import own_plan
from breakeven.storage.index.store import Store
from breakeven.storage.words.recipe import Change, change, how_to_use, recipe, setting_lines
from tests.helpers.journals import EXPERIMENT_ID, experiment_spec, record_experiment

pytestmark = pytest.mark.heavy

LOOP = """\"\"\"Trains.\"\"\"
import breakeven
import torch

model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model = breakeven.compile(model)
loss = model(torch.ones(1, 2)).sum()
loss.backward()
optimizer.step()
breakeven.step(loss)
print(optimizer.param_groups[0]["fused"], model._compiled_call_impl in (None, model._call_impl))
"""


def script(file: Path, **changes: object) -> ExperimentSpec:
    spec = ExperimentSpec(
        name="mine",
        task="script",
        model=ModelSpec(source=f"script:{file}"),
        data=DataSpec(source="script"),
        backends=("none:optimizer=fused",),
        block_steps=10,
        script=ScriptSpec(steps=80),
    )
    return replace(spec, **changes)


def changed(code: str, backend: str | None, name: str = "train.py") -> Change | None:
    """Of the code of a script; None is the baseline."""
    spec = script(Path("/home/me/train.py"))
    arm = parse_backend(backend) if backend else spec.arms[0]
    return change(code.encode(), name, arm, [*setting_lines(spec, arm)])


CALL = "import breakeven\nmodel = breakeven.compile(model{})\n"
CHANGED: list[tuple[str, str | None, str]] = [
    (CALL.format(""), "eager", CALL.format(", backend='eager'")),
    # No compiler was measured, so the script must not compile when it runs by itself.
    (CALL.format(""), None, CALL.format(", disable=True")),
    (CALL.format(", dynamic=True"), "eager", CALL.format(", dynamic=True, backend='eager'")),
    (
        "import torch as t\nf = t.compile(f, mode='max-autotune')\n",
        "eager",
        "import torch as t\nf = t.compile(f, mode=None, backend='eager')\n",
    ),
    (
        "from torch import compile\n@compile\ndef step(): ...\n",
        "eager",
        "from torch import compile\n@compile(backend='eager')\ndef step(): ...\n",
    ),
    (
        "import torch\n@torch.compile()\ndef step(): ...\n",
        None,
        "import torch\n@torch.compile(disable=True)\ndef step(): ...\n",
    ),
    ("net.compile()\n", "eager", "net.compile(backend='eager')\n"),
    ("import re\nre.compile('x')\n", None, "import re\nre.compile('x')\n"),
    # Bytes outside of ASCII before a call, Windows' ends of lines, no end of the last line.
    (
        "import torch\nä = 'ü'; m = torch.compile(ä)\r\nend = 1",
        "eager",
        "import torch\nä = 'ü'; m = torch.compile(ä, backend='eager')\r\nend = 1",
    ),
    (
        "from torch.optim import AdamW\no = AdamW(\n    p,\n    lr=1,\n)\n",
        "none:optimizer=fused",
        "from torch.optim import AdamW\no = AdamW(\n    p,\n    lr=1,\n    fused=True,\n)\n",
    ),
    (
        "import breakeven\nmodel = breakeven.compile(model)\n",
        "inductor",
        "import breakeven\n\nimport torch\n"
        "torch._inductor.config.fallback_random = True  # dropout as without a compiler\n"
        "model = breakeven.compile(model)\n",
    ),
    (
        "from transformers import TrainingArguments\na = TrainingArguments('out')\n",
        "eager",
        "from transformers import TrainingArguments\n"
        "a = TrainingArguments('out', torch_compile=True, torch_compile_backend='eager')\n",
    ),
    (
        "from transformers import TrainingArguments as A\na = A(optim='adamw_torch')\n",
        "none:optimizer=fused",
        "from transformers import TrainingArguments as A\na = A(optim='adamw_torch_fused')\n",
    ),
    (
        "from torch.utils.data import DataLoader\nloader = DataLoader(data, num_workers=0)\n",
        "none:loader_workers=4",
        "from torch.utils.data import DataLoader\nloader = DataLoader(data, num_workers=4)\n",
    ),
    (
        "from transformers import TrainingArguments as A\na = A()\n",
        "none:loader_workers=2",
        "from transformers import TrainingArguments as A\na = A(dataloader_num_workers=2)\n",
    ),
    (
        "from transformers import TrainingArguments as A\na = A(torch_compile=True)\n",
        None,
        "from transformers import TrainingArguments as A\na = A(torch_compile=False)\n",
    ),
    (
        "import torch\nfrom transformers import TrainingArguments\nTrainingArguments()\n",
        "inductor:mode=max-autotune+cpp_wrapper=true",
        "import torch\nfrom transformers import TrainingArguments\n\n"
        "torch._inductor.config.fallback_random = True  # dropout as without a compiler\n"
        "torch._inductor.config.cpp_wrapper = True\n"
        "TrainingArguments(torch_compile=True, torch_compile_mode='max-autotune')\n",
    ),
]


def test_git_applies_changes(tmp_path: Path) -> None:
    diffs = []
    for number, (before, backend, _) in enumerate(CHANGED):
        name = f"my train {number}.py"
        (tmp_path / name).write_bytes(before.encode())
        changed_script = changed(before, backend, name)
        assert changed_script is not None
        diffs.append(changed_script.diff)
    git_apply(tmp_path, "".join(diffs))
    for number, (_, _, after) in enumerate(CHANGED):
        assert (tmp_path / f"my train {number}.py").read_bytes().decode() == after


def git_apply(folder: Path, diff: str) -> None:
    subprocess.run(["git", "apply"], input=diff.encode(), cwd=folder, check=True)


def test_what_cannot_be_changed_is_left_to_the_reader() -> None:
    assert changed("import torch\ntorch.compile(f, **settings)\n", "eager") is None
    assert changed("this is no Python", "eager") is None
    by_place = "import torch.utils.data\ntorch.utils.data.DataLoader(d, 8, None, None, None, 2)\n"
    assert changed(by_place, "none:loader_workers=4") is None
    changed_script = changed("import lightning\n", "eager:optimizer=fused+loader_workers=4")
    assert changed_script is not None and not changed_script.diff
    assert (
        not changed_script.says_compiler
        and not changed_script.says_form
        and not changed_script.says_loaders
    )


def test_data_is_pinned_on_a_gpu_only() -> None:
    code = b"from torch.utils.data import DataLoader\nDataLoader(data)\n"
    arm = parse_backend("none:loader_workers=4")
    for on_cuda, added in ((True, "num_workers=4, pin_memory=True"), (False, "num_workers=4")):
        changed_script = change(code, "train.py", arm, [], on_cuda=on_cuda)
        assert changed_script is not None
        assert changed_script.diff.endswith(f"+DataLoader(data, {added})\n")


def recorded(data_dir: DataDir, folder: Path, code: str, **changes: object) -> None:
    """An experiment with a script, whose only backend wins."""
    file = folder / "train.py"
    file.write_text(code)
    spec = script(file, **changes)
    record_experiment(data_dir.runs, spec)
    run = RunDir(data_dir.runs / f"{EXPERIMENT_ID}.baseline")
    copy = run.artifacts / "source" / "train.py"
    copy.parent.mkdir(parents=True)
    copy.write_text(code)
    seq = len(run.events_file.read_text().splitlines())
    with run.events_file.open("a") as journal:
        journal.write(
            f'{{"seq":{seq},"time":1.0,"kind":"source","source":"{file}",'
            '"file":"artifacts/source/train.py","sha256":"x"}\n'
        )


def test_git_applies_what_show_prints(
    data_dir: DataDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(data_dir, tmp_path, LOOP)
    storage(["show", "--wide", f"--data-folder={data_dir.path}", EXPERIMENT_ID])
    shown = capsys.readouterr().out
    here = f" --data-folder={data_dir.path}"
    command = f"cd {tmp_path} && breakeven show {EXPERIMENT_ID} --diff{here} | git apply"
    assert f"to use none-fused, change train.py with this command:\n    {command}\n" in shown
    # The command of another length applies the diff of this length.
    storage(
        ["show", "--wide", f"--data-folder={data_dir.path}", EXPERIMENT_ID, "--plan=9000 steps"]
    )
    longer = f"breakeven show {EXPERIMENT_ID} --plan '9000 steps' --diff{here} | git apply"
    assert longer in capsys.readouterr().out
    assert (
        storage(["show", "--wide", f"--data-folder={data_dir.path}", EXPERIMENT_ID, "--diff"]) == 0
    )
    diff = capsys.readouterr().out
    assert diff in shown and diff.startswith("--- a/train.py")
    git_apply(tmp_path, diff)
    runpy.run_path(str(tmp_path / "train.py"), run_name="__main__")
    assert capsys.readouterr().out == "True True\n"


@pytest.mark.parametrize("place", ["uploaded", "a link to what was uploaded", "elsewhere"])
def test_of_a_script_that_is_not_the_authors_own_file_the_command_changes_no_copy(
    data_dir: DataDir, tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    uploaded = data_dir.path / "scripts" / "train-1f2e3d4c5b6a"
    uploaded.mkdir(parents=True)
    folder = uploaded if place == "uploaded" else tmp_path / "project"
    if place.startswith("a link"):
        folder.symlink_to(uploaded)
    folder.mkdir(exist_ok=True)
    recorded(data_dir, folder, LOOP)
    if place == "elsewhere":
        (folder / "train.py").unlink()
    storage(["show", "--wide", f"--data-folder={data_dir.path}", EXPERIMENT_ID])
    shown = capsys.readouterr().out
    here = f" --data-folder={data_dir.path}"
    command = f"\n    breakeven show {EXPERIMENT_ID} --diff{here} | git apply\n"
    said = "change your own train.py with this command, in the folder of the file:"
    assert f"to use none-fused, {said}{command}" in shown


def test_without_a_script_no_diff(data_dir: DataDir, capsys: pytest.CaptureFixture[str]) -> None:
    record_experiment(data_dir.runs)
    assert (
        storage(["show", "--wide", f"--data-folder={data_dir.path}", EXPERIMENT_ID, "--diff"]) == 2
    )
    printed = capsys.readouterr()
    assert not printed.out and "has no script that a diff changes" in printed.err


@pytest.mark.parametrize("hidden", ["\x1b[2J", "\u202e", "\r"])
def test_a_diff_has_nothing_that_a_terminal_obeys(hidden: str) -> None:
    code = f"# {hidden}hidden\nimport breakeven\nmodel = breakeven.compile(model)\n"
    assert changed(code, "eager") is None
    assert changed(code.replace(hidden, ""), "eager") is not None


def test_a_name_that_would_be_a_line_of_the_diff_has_none(
    data_dir: DataDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a\n+++ b").mkdir()
    recorded(data_dir, tmp_path / "a\n+++ b", LOOP)
    storage(["show", "--wide", f"--data-folder={data_dir.path}", EXPERIMENT_ID])
    shown = capsys.readouterr().out
    assert "to use none-fused, write:" in shown and "+++" not in shown.replace("\\n+++", "")


def test_a_form_that_the_script_gets_elsewhere_is_a_line_to_write(
    data_dir: DataDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(data_dir, tmp_path, LOOP.replace("torch.optim.SGD(", "made("))
    storage(["show", "--wide", f"--data-folder={data_dir.path}", EXPERIMENT_ID])
    shown = capsys.readouterr().out
    assert "compile(model, disable=True)" in shown
    assert "\nand change by hand:\n    # Where your script makes its optimizer," in shown


def test_where_nothing_gains_the_script_is_left_without_a_compiler(
    data_dir: DataDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    uncompiled = LOOP.replace("breakeven.compile(model)", "model")
    for number, (code, says) in enumerate(
        (
            (LOOP, "to train without a compiler, change train.py with this command:"),
            (uncompiled, "train.py has these settings already: leave it as it is."),
        )
    ):
        folder = DataDir(data_dir.path / str(number))
        recorded(folder, tmp_path, code, scenario="tune", backends=())
        storage(["show", "--wide", f"--data-folder={folder.path}", EXPERIMENT_ID])
        assert says in capsys.readouterr().out


def test_a_search_that_has_not_decided_says_nothing_of_how_to_train_without_a_compiler(
    data_dir: DataDir, tmp_path: Path
) -> None:
    recorded(data_dir, tmp_path, LOOP, scenario="tune", backends=())
    with Store.in_memory(data_dir) as store:
        comparison = compare(store, EXPERIMENT_ID)
        planned = own_plan(comparison)
        assert how_to_use(store, comparison, planned) is not None
        assert planned.answer is not None
        undecided = replace(planned, answer=replace(planned.answer, kind="not decided"))
        assert how_to_use(store, comparison, undecided) is None


SPEC = ExperimentSpec(
    name="x", model=ModelSpec(dropout="off"), training=TrainingSpec(optimizer="AdamW")
)


@pytest.mark.parametrize(
    ("backend", "lines"),
    [
        ("inductor:scope=forward", ["model.compile()"]),
        (
            "aot_eager:scope=forward+dynamic=true",
            ["model.compile(backend='aot_eager', dynamic=True)"],
        ),
        (
            "inductor:scope=forward+mode=max-autotune+cpp_wrapper=true",
            [
                "model.compile(options={**torch._inductor.list_mode_options('max-autotune'), "
                "'cpp_wrapper': True})"
            ],
        ),
        (
            "inductor",
            [
                "@torch.compile",
                "def train_step(batch):",
                "    ...  # forward, loss.backward(), optimizer.step(), optimizer.zero_grad()",
            ],
        ),
        (
            "inductor:scope=blocks",
            [
                "for block in model.layers:  # the repeated blocks, whatever the model calls them",
                "    block.compile()",
            ],
        ),
        (
            "none:optimizer=fused",
            ["optimizer = torch.optim.AdamW(model.parameters(), ..., fused=True)"],
        ),
        (
            "thunder.dynamo:Compiler:scope=forward",
            [
                "from thunder.dynamo import Compiler  # if it is a class, backend=Compiler()",
                "model.compile(backend=Compiler)",
            ],
        ),
        (
            "/my/own.py:go:scope=forward",
            ["from own import go  # if it is a class, backend=go()", "model.compile(backend=go)"],
        ),
        ("none:batch_times=4", ["batch_size = 32  # instead of 8: another training"]),
        (
            "none:tf32=true",
            [
                'torch.set_float32_matmul_precision("high")',
                "torch.backends.cudnn.allow_tf32 = True",
            ],
        ),
    ],
)
def test_each_setting_has_its_line(backend: str, lines: list[str]) -> None:
    text = recipe(SPEC, parse_backend(backend))
    assert text.split("\n") == lines
    ast.parse(text)


def test_compiled_blocks_are_named_as_the_run_found_them_in_the_model(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = replace(experiment_spec(), backends=("eager:scope=blocks",))
    spec = replace(spec, training=replace(spec.training, max_steps=200))
    record_experiment(data_dir.runs, spec)
    journal = RunDir(data_dir.runs / f"{EXPERIMENT_ID}.eager-blocks").events_file
    event = journal.read_text()
    recorded = '"blocks":["bert.encoder.layer.*","head.0"],"majority_share"'
    assert '"majority_share"' in event
    journal.write_text(event.replace('"majority_share"', recorded))
    storage(
        ["show", "--wide", f"--data-folder={data_dir.path}", EXPERIMENT_ID, "--plan=90000 steps"]
    )
    assert (
        "    for block in model.get_submodule('bert.encoder.layer').children():\n"
        "        block.compile(backend='eager')\n"
        "    model.get_submodule('head.0').compile(backend='eager')\n"
    ) in capsys.readouterr().out


def test_dropout_is_drawn_as_it_was_measured() -> None:
    kept = ExperimentSpec(name="x", model=ModelSpec(dropout="keep"))
    assert "fallback_random = True" in recipe(kept, parse_backend("inductor"))
    assert "fallback_random" not in recipe(kept, parse_backend("aot_eager"))
    assert recipe(SPEC, SPEC.arms[0]) == "", "the baseline needs no line"
