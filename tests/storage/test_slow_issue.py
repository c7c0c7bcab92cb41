"""The issue about a backend that is only slower: stages, bridge, kernels by name, versions."""

import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.storage.__main__ import main
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.index.store import Store
from breakeven.storage.words.issues import escaped, fenced, slow_issue
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec, record_experiment

GEMM = {"name": "nvjet_sm90_tst_1", "op": "aten::mm", "phase": "forward", "dtype": "bf16"}
FLASH = {"name": "void flash_fwd_kernel<Traits<64>|4>", "phase": "forward"}
SOFTMAX = {"name": "triton_per_fused__softmax_3"}
STAGES = ("eager", "aot_eager", "inductor")


def record(data_dir: DataDir) -> None:
    """The baseline takes 100 ms: 50 + 30 of kernels. Inductor alone leaves the fused attention, and
    takes 200 ms: 50 + 120."""
    spec = experiment_spec(num_steps=80, backends=STAGES)
    for arm in spec.arms:
        is_slow = arm.label == "inductor"
        attention = SOFTMAX | {"seconds": 0.120} if is_slow else FLASH | {"seconds": 0.030}
        run = Recording(data_dir.runs, arm.label, spec).claim()
        run.start(
            environment={"device_type": "cuda", "device_name": "NVIDIA H100", "driver": "580.1"}
        )
        run.blocks(
            [0.200 if is_slow else 0.100] * 8, [1.0] * 80, 9.0 if arm.role == "backend" else 0.0
        )
        for _ in range(3):
            run.profile([GEMM | {"seconds": 0.050}, attention])
        run.end()


def shown(data_dir: DataDir, *options: str) -> int:
    return main(["show", EXPERIMENT_ID, f"--data-folder={data_dir.path}", *options])


def test_the_issue_of_a_slow_backend(data_dir: DataDir, capsys: pytest.CaptureFixture[str]) -> None:
    record(data_dir)
    assert shown(data_dir, "--issue") == 0
    text = capsys.readouterr().out
    assert text.startswith(
        "# torch.compile: with inductor, a step takes 2.00x as long as without a compiler\n"
    )
    assert "A step takes 200 ms with inductor and 100 ms without a compiler: it is 0.50x" in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    stages = [row.split(" | ")[0] for row in rows[:6]]
    assert stages == [
        "| stage",
        "| ---",
        "| no compiler",
        "| Dynamo",
        "| AOTAutograd",
        "| Inductor",
    ]
    assert "slower" in rows[5] and "slower" not in rows[4]
    assert "First stage that is slower: inductor" in text
    # 80 ms of kernels and 20 idle become 170 and 30.
    assert "| attention, flash | 30.0 ms | 0 s | -30.0 ms |" in rows
    assert "| device idle | 20.0 ms | 30.0 ms | +10.0 ms |" in rows
    assert "| whole step | 100 ms | 200 ms | +100 ms |" in rows
    kernels = [row for row in rows if "softmax_3" in row or "flash_fwd" in row]
    assert [row.split(" | ")[0] for row in kernels] == [
        "| triton_per_fused__softmax_3",
        "| void flash_fwd_kernel\\<Traits\\<64\\>\\|4\\>",
    ]
    assert kernels[0].endswith("| 0 s | 120 ms | +120 ms |")
    assert "nvjet" not in text, "as long in both"
    versions = text.partition("### Versions\n\n```\n")[2].splitlines()
    assert versions[0].startswith("torch: ") and "driver: 580.1" in versions
    assert main(["explain", EXPERIMENT_ID, "--ladder", f"--data-folder={data_dir.path}"]) == 0
    show = f"breakeven show {EXPERIMENT_ID} --issue --data-folder={data_dir.path}"
    said = f"the text of an issue for PyTorch: {show}\n"
    assert capsys.readouterr().out.endswith(said)


def test_no_slow_backend_no_issue(data_dir: DataDir, capsys: pytest.CaptureFixture[str]) -> None:
    record_experiment(data_dir.runs, experiment_spec(120, 10))
    assert shown(data_dir, "--issue") == 2
    assert "is surely slower than a baseline" in capsys.readouterr().err


def test_the_issue_is_one_of_the_comparison_that_a_page_shows(data_dir: DataDir) -> None:
    """A running experiment may get further steps between the two."""
    later = DataDir(data_dir.path / "later")
    record_experiment(data_dir.runs, experiment_spec(120, 10), backend_seconds=0.4)
    record_experiment(later.runs, experiment_spec(120, 10))
    with Store.in_memory(data_dir) as store:
        shown_before = compare(store, EXPERIMENT_ID)
    with Store.in_memory(later) as store:
        assert "A step takes 400 ms with inductor" in slow_issue(store, shown_before)


def test_an_issue_needs_no_profile(data_dir: DataDir, capsys: pytest.CaptureFixture[str]) -> None:
    spec = experiment_spec(120, 10, schedule="sequential")
    record_experiment(data_dir.runs, spec, backend_seconds=0.4)
    assert shown(data_dir, "--issue") == 0
    text = capsys.readouterr().out
    assert "the runs did not take turns." in text
    assert "| run | step time | speedup |" in text and "| inductor | 400 ms | 0.50x" in text
    assert "inductor has no profile" in text


@pytest.mark.parametrize(
    ("text", "shows"),
    [
        ("a|b", r"a\|b"),
        ("<img src=x>", r"\<img src=x\>"),
        ("a\n# b", r"a\\n# b"),
        ("`x` [y](z)", r"\`x\` \[y\](z)"),
        ("\x1b[31mred", r"\\x1b\[31mred"),
        ("@name, a@b.c", "@\u200bname, a@\u200bb.c"),
        ("as #12 and C# 7", "as #\u200b12 and C# 7"),
        ("aten.__and__, a_b, x__y, _z", r"aten.\_\_and\_\_, a_b, x__y, \_z"),
        ("A&lt;b", r"A\&lt;b"),
    ],
)
def test_a_text_among_markdown_is_shown_as_it_is(text: str, shows: str) -> None:
    assert escaped(text) == shows


def test_a_secret_with_marks_of_markdown_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUB_TOKEN", "p@ss*word_")
    assert escaped("with p@ss*word_ in /home/a~b/x") == r"with \[masked\] in \~/x"


def test_a_block_of_code_ends_where_it_should_and_has_no_terminal_controls() -> None:
    assert fenced("a\n````\n\x1b[2Jb", "pytb") == "`````pytb\na\n````\n\\x1b[2Jb\n`````"
    assert len(fenced("x" * 100_000, "pytb")) < 21_000
    assert len(fenced("x" * 30_000, "python")) > 30_000, "a program is whole"
