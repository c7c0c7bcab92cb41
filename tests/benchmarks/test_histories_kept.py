"""Played histories are kept: a later call continues after them and reports all of them."""

from pathlib import Path

import pytest

from benchmarks.breaking.kept_lines import read_lines
from benchmarks.simulation import __main__ as simulation

pytestmark = pytest.mark.heavy


def test_a_call_goes_on_after_what_is_recorded_and_begins_nothing_without_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(simulation, "AT_ONCE", 3)
    records = tmp_path / "histories.jsonl"

    def play(*more: str) -> str:
        command = ["simulation", "--jobs", "1", "--seed", "kept", "--records", str(records), *more]
        monkeypatch.setattr("sys.argv", command)
        simulation.main()
        return capsys.readouterr().out

    assert "No history was played" in play("--histories", "3", "--seconds", "-1")
    assert ": 3 histories of seed kept, 0 of them" in play("--histories", "3")
    first = records.read_text()
    with records.open("a") as file:
        file.write('{"seed": "kept", "fir')  # as a killed process leaves it
    assert ": 5 histories of seed kept" in play("--histories", "5")
    assert records.read_text().startswith(first)
    assert [line["first"] for line in read_lines(records)] == [0, 3]
