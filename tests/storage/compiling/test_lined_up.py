"""Lines of two runs are lined up whatever was written above them, and kernels by name."""

import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.storage.compiling.difference import NEW, LineMap, compile_difference, load_compiled
from breakeven.storage.index.store import Store
from tests.helpers.journals import Recording, experiment_spec

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
def test_of_files_that_are_not_kept_breaks_are_paired_in_the_order_of_their_lines(
    data_dir: DataDir, lines: tuple[int, ...], expected: list[str]
):
    found = [row.name for row in difference(data_dir, (7, 9), lines) if row.kind == "graph break"]
    assert found == expected


def test_kernels_differ_by_name_and_by_how_often_a_step_calls_them(data_dir: DataDir):
    found = {
        row.name: row.values
        for row in difference(data_dir, (), (), {"gemm": 2, "softmax": 1, "same": 3},
                              {"gemm": 4, "flash": 1, "same": 3})
        if row.kind == "kernel"
    }  # fmt: skip
    assert found == {
        "gemm": ("2 x a step", "4 x a step"),
        "softmax": ("1 x a step", "\N{EN DASH}"),
        "flash": ("\N{EN DASH}", "1 x a step"),
    }
    alone = difference(DataDir(data_dir.path / "alone"), (), (), {"gemm": 2}, {})
    assert not [row for row in alone if row.kind == "kernel"], "one of them was not profiled"


def difference(
    folder: DataDir,
    one: tuple[int, ...],
    other: tuple[int, ...],
    kernels: dict[str, int] | None = None,
    its: dict[str, int] | None = None,
):
    """Of two experiments whose backends broke the graph in these lines of a library."""
    for name, lines, called in (("a", one, kernels), ("b", other, its)):
        run = Recording(folder.runs, "inductor", experiment_spec(), name).claim().start()
        for line in lines:
            run.log.append("graph_break", step=0, phase="training", reason="print", count=1,
                           location=f"lib/x.py:{line}", stopped_at="lib/x.py:1")  # fmt: skip
        for kernel, calls in (called or {}).items():
            run.log.append("profile_kernel", round=1, name=kernel, calls=calls, seconds=0.1)
        run.end()
    with Store.in_memory(folder) as store:
        return compile_difference(*(load_compiled(store, f"{name}.inductor") for name in "ab"))
