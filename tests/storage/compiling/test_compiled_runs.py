"""Two compiled runs are lined up, whatever was written above a line; stored code; the timeline."""

import signal
from pathlib import Path

import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.storage.compiling.timeline import timeline
from breakeven.storage.compiling.two_runs import (
    MAX_COMPARED_LINES,
    NEW,
    KeptFile,
    LineMap,
    code_difference,
    compile_difference,
    load_compiled,
)
from breakeven.storage.index.store import Store
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec

BEFORE = ["def f(x):", "    y = g(x)", "    stop()", "    return y"]
AFTER = ["def f(x):", "    new()", "    y = g(x)", "    stop()", "    return y"]


def test_a_line_below_an_added_one_is_the_same_and_the_added_one_is_new():
    moved = LineMap({"/a/net.py": BEFORE}, {"/b/net.py": AFTER})
    assert moved("/b/net.py:4") == "/a/net.py:3"
    assert moved("/b/net.py:2") == f"{NEW}/b/net.py:2"
    assert moved("torch/x.py:4") == "torch/x.py:4" and not moved.knows("torch/x.py:4")
    assert moved("no place") == "no place"


def test_a_file_that_got_another_name_is_still_lined_up():
    assert LineMap({"/a/net.py": BEFORE}, {"/a/changed.py": AFTER})("/a/changed.py:5") == (
        "/a/net.py:4"
    )


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((7, 9), []),  # the same
        ((8, 11), []),  # a library's other version: both moved
        ((7, 9, 20), ["lib/x.py:20: print"]),
        ((7,), ["lib/x.py:9: print"]),
    ],
)
def test_breaks_pair_by_line(data_dir: DataDir, lines: tuple[int, ...], expected: list[str]):
    names = [row.name for row in difference(data_dir, (7, 9), lines) if row.kind == "graph break"]
    assert names == expected


def test_kernels_differ_by_name_and_by_how_often_a_step_calls_them(data_dir: DataDir):
    values_by_kernel = {
        row.name: row.values
        for row in difference(
            data_dir,
            (),
            (),
            {"gemm": 2, "softmax": 1, "same": 3},
            {"gemm": 4, "flash": 1, "same": 3},
        )
        if row.kind == "kernel"
    }
    assert values_by_kernel == {
        "gemm": ("2 x a step", "4 x a step"),
        "softmax": ("1 x a step", "\N{EN DASH}"),
        "flash": ("\N{EN DASH}", "1 x a step"),
    }
    alone = difference(DataDir(data_dir.path / "alone"), (), (), {"gemm": 2}, {})
    assert not [row for row in alone if row.kind == "kernel"], "one of them was not profiled"


def difference(
    folder: DataDir,
    first_lines: tuple[int, ...],
    other_lines: tuple[int, ...],
    first_kernels: dict[str, int] | None = None,
    other_kernels: dict[str, int] | None = None,
):
    """Of two experiments whose backends broke the graph in these lines of a library."""
    for name, lines, called in (
        ("a", first_lines, first_kernels),
        ("b", other_lines, other_kernels),
    ):
        run = Recording(folder.runs, "inductor", experiment_spec(), name).claim().start()
        for line in lines:
            run.log.append(
                "graph_break",
                step=0,
                phase="training",
                reason="print",
                count=1,
                location=f"lib/x.py:{line}",
                stopped_at="lib/x.py:1",
            )
        for kernel, calls in (called or {}).items():
            run.log.append("profile_kernel", round=1, name=kernel, calls=calls, seconds=0.1)
        run.end()
    with Store.in_memory(folder) as store:
        return compile_difference(*(load_compiled(store, f"{name}.inductor") for name in "ab"))


def kept(folder: Path, content: str) -> KeptFile:
    folder.mkdir()
    (folder / "code.py").write_text(content)
    return KeptFile(
        folder=RunDir(folder), what="code", compile_id=None, file="code.py", num_bytes=len(content)
    )


def test_where_a_cache_lay_is_no_difference(tmp_path: Path) -> None:
    file = kept(
        tmp_path / "a", "x = '/runs/a/compile_cache/k1.py'\ny=/tmp/torchinductor_me/z/k.py\n"
    )
    elsewhere = kept(
        tmp_path / "b", "x = '/else/compile_cache/k2.py'\ny=/tmp/torchinductor_you/k.py\n"
    )
    changed = kept(
        tmp_path / "c", "x = '/else/compile_cache/k2.py'\nz=/tmp/torchinductor_you/k.py\n"
    )
    assert code_difference([file], [elsewhere]) == []
    ((name, difference),) = code_difference([file], [changed])
    assert name == "code.py" and "-y=<cache>" in difference and "+z=<cache>" in difference


def test_a_long_path_and_many_lines_hold_nobody_up(tmp_path: Path) -> None:
    """A path of two megabytes was looked at anew from each of its strokes: for days."""
    long_path = kept(tmp_path / "a", "/a" * 1_000_000)
    many_lines = kept(tmp_path / "b", "x\n" * 1_000_000)
    signal.signal(signal.SIGPROF, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_PROF, 60)  # seconds of this process, however busy others are
    try:
        ((_, difference),) = code_difference([long_path], [many_lines])
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
    assert difference.count("\n+x") == MAX_COMPARED_LINES


def span(stage: str, start: float, seconds: float, thread: int = 0) -> dict[str, object]:
    return {"stage": stage, "name": stage, "start": start, "seconds": seconds, "thread": thread}


def record(data_dir: DataDir, *rows: tuple[str, int, list[dict[str, object]]]) -> Recording:
    run = Recording(data_dir.runs, "inductor").claim().start()
    for number, (compile_id, step, spans) in enumerate(rows):
        run.log.append(
            "compile_metrics",
            step=step,
            phase="training",
            compile_id=compile_id,
            function=f"forward_{number}",
            file="net.py",
            line=10 + number,
            total_seconds=1.0,
        )
        run.log.append(
            "compile_spans", step=step, phase="training", compile_id=compile_id, spans=spans
        )
    run.end()
    return run


def test_time_between_compilations_is_left_out(data_dir: DataDir):
    """The second frame begins 100 s after the first one ended: 5 s into the picture."""
    first = [span("dynamo", 1000, 5), span("aot", 1001, 4), span("kernels", 1002, 2, thread=1)]
    run = record(data_dir, ("0/0", 0, first), ("0/1", 7, [span("dynamo", 1105, 2)]))
    with Store.in_memory(data_dir) as store:
        spans = timeline(store, EXPERIMENT_ID, run.run_id)
    assert list(spans["frame"]) == ["forward_0 [0/0]"] * 3 + ["forward_1 [0/1]"]
    assert list(spans["begin"]) == [0, 1, 2, 5]
    assert list(spans["gap_seconds"]) == [0, 0, 0, 100]
    assert list(spans["stage"]) == ["Dynamo", "AOTAutograd", "Triton and C++", "Dynamo"]
    assert list(spans["thread"]) == [0, 0, 1, 0]
    assert list(spans["place"]) == ["net.py:10"] * 3 + ["net.py:11"]
    assert list(spans["step"]) == [0, 0, 0, 7]


def test_what_no_run_could_have_recorded_is_left_out(data_dir: DataDir):
    spans = [
        span("dynamo", 1000, 5),
        span("dynamo", -1, 5),
        span("dynamo", 1000, -5),
        span("dynamo", float("inf"), 5),
        span("dynamo", 1000, float("nan")),
        span("magic", 1000, 1),
        {"stage": None},
        {"stage": "dynamo", "start": "soon"},
        "no span",
    ]
    run = record(data_dir, ("0/0", 0, spans))  # type: ignore[list-item]
    with Store.in_memory(data_dir) as store:
        drawn = timeline(store, EXPERIMENT_ID, run.run_id)
        without = timeline(store, EXPERIMENT_ID, "no run")
    assert len(drawn) <= 1 and without.empty
