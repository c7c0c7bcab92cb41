"""What `show`, `run` and `compare` print unless more is asked for: the answer, in 80 columns."""

from dataclasses import replace

import pytest

from breakeven.runner.project import PACKAGE
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.storage import commands
from breakeven.storage.__main__ import main
from breakeven.storage.index.store import Store
from breakeven.storage.queries import id_named
from breakeven.storage.terminal import layout
from breakeven.storage.terminal.layout import aligned_table, cut_table
from breakeven.storage.terminal.lists import short_ids
from tests.helpers.journals import EXPERIMENT_ID, experiment_spec, record_experiment

pytestmark = pytest.mark.heavy  # the recorded examples are judged

TABLE = [["run", "verdict"], ["baseline", "-"], ["inductor", "faster"]]


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main([*words]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.fixture(autouse=True)
def usual_folder(data_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BREAKEVEN_DATA", str(data_dir.path))
    monkeypatch.setattr(commands, "EXAMPLES", PACKAGE / "examples")


def test_the_result_begins_with_the_answer_and_ends_with_commands_that_work(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = shown(capsys, "show", "10f4")
    assert lines[0].startswith("Use inductor-blocks for 600 steps: 51 s instead of 55 s, compiling")
    assert lines[2].startswith("BERT-base on star reviews: builtin:bert-base on builtin:reviews")
    table = lines[4:10]
    assert table[0].split() == ["run", "verdict", "speedup", "(95", "%)", "break-even", "parity"]
    assert table[5].split()[:2] == ["inductor-blocks", "faster"]
    assert table[5].endswith("1.30x (1.30 to 1.30)    408 steps  matches")
    assert max(map(len, table)) <= 80
    warnings = [line for line in lines if line.startswith("warning: ")]
    assert len(warnings) == 2 and max(map(len, warnings)) <= 130
    *_, wide, explain = lines
    assert wide == "all numbers and 2 notes: breakeven show 10f4 --wide"
    assert explain == "where the time goes: breakeven explain 10f4"
    for line in (wide, explain):
        assert len(shown(capsys, *line.partition("breakeven ")[2].split())) > len(lines)


def test_runs_whose_parity_is_open_alike_share_one_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (reason,) = [line for line in shown(capsys, "show", "2663") if line.startswith("parity of ")]
    assert reason.startswith("parity of eager-forward: nothing learned; the loss stays within")
    assert "(likewise inductor-forward and inductor-forward-reduce-overhead)" in reason


def test_a_list_has_a_line_per_experiment_that_fits_80_columns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, rule, *rows = shown(capsys, "list")
    assert len(rows) == 7 and max(map(len, [rule, *rows])) <= 80
    (row,) = [row for row in rows if row.startswith("10f4 ")]
    assert row.split("  ")[1:3] == ["BERT-base on star reviews", "use inductor-blocks for 6…"]


def test_without_a_name_the_last_own_experiment_is_shown_or_else_the_last_example(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shown(capsys, "show")[0].startswith("Use inductor-reduce-overhead-blocks for 20,000")
    record_experiment(data_dir.runs, replace(experiment_spec(), name="mine"))
    assert any(line.startswith("mine: ") for line in shown(capsys, "show"))


def test_a_beginning_or_end_of_several_ids_is_refused_with_the_ids(data_dir: DataDir) -> None:
    record_experiment(data_dir.runs, experiment_spec())
    with Store.in_memory(data_dir, commands.EXAMPLES) as store:
        assert id_named(store, EXPERIMENT_ID[-4:]) == id_named(store, EXPERIMENT_ID)
        with pytest.raises(Exception, match="of several ids: 20261121-093015-123456-7f3a, 2026"):
            id_named(store, "2026")
        with pytest.raises(Exception, match="no experiment 'zzzz'"):
            id_named(store, "zzzz")


def test_ids_that_end_alike_stay_whole() -> None:
    assert short_ids(["a-1111", "b-2222"]) == ["1111", "2222"]
    assert short_ids(["a-1111", "b-1111", "c-2222"]) == ["a-1111", "b-1111", "2222"]


def test_tables_are_plain_where_rich_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "HAS_RICH", False)
    plain = ["run       verdict", "--------  -------", "baseline        -", "inductor   faster"]
    assert aligned_table(TABLE, 1) == plain
    assert cut_table([["id", "name"], ["a", "b" * 90]], 1)[2] == f"a   {'b' * 90}"
    assert layout.wrapped("long " * 40) == "long " * 40
