"""The summary for a pull request, as GitHub's Markdown shows it."""

import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.storage.__main__ import main
from breakeven.storage.terminal.markdown import _row, _shown, fenced
from breakeven.storage.words.inert import JOINER
from tests.helpers.hostile_texts.texts import ODD, TEXTS
from tests.helpers.journals import EXPERIMENT_ID, experiment_spec, record_experiment

READER = MarkdownIt("commonmark").enable("table").enable("strikethrough")


def cells(markdown: str) -> list[list[str]]:
    """The texts of the cells of a table, row by row; a tag within a cell stays."""
    html = READER.render(markdown)
    rows = re.findall("<tr>(.*?)</tr>", html, re.DOTALL)
    return [re.findall("<t[hd]>(.*?)</t[hd]>", row, re.DOTALL) for row in rows]


def test_a_hostile_name_shows_every_character_in_its_own_cell_and_nothing_acts() -> None:
    texts = [*TEXTS, "a|b", "`|`", "@everyone", "fixes #12", "x\\|y", "team/@org"]
    rows = [_row([_shown(text), "6"]) for text in texts]
    _, *shown = cells("\n".join([_row(["name", "n"]), _row(["---", "---"]), *rows]))
    assert len(shown) == len(texts)
    for text, (name, number) in zip(texts, shown, strict=True):
        assert number == "6", text
        assert "<" not in name, name
        assert unescape(name).replace(JOINER, "").strip() == text.strip()
        assert not re.search(r"[@#]\w", unescape(name)), "nobody is mentioned"


def test_a_name_of_several_lines_stays_in_its_row_and_a_command_in_its_block() -> None:
    for text in ODD:
        assert "\n" not in _row([_shown(text)]) and "\x1b" not in _shown(text)
    command = "breakeven run 'x\n```\n<img src=x>\n````'"
    assert READER.render(fenced(command, "sh")).count("<img") == 0


@pytest.mark.heavy
def test_the_summary_has_the_answer_six_columns_folded_warnings_and_the_command(
    data_dir: DataDir,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It says what the terminal says, and is added to the summary of a job."""
    spec = replace(experiment_spec(num_steps=100), name="<b>@me</b> | #1")
    record_experiment(data_dir.runs, spec)
    job, file = tmp_path / "job.md", tmp_path / "pr.md"
    job.write_text("before\n")
    show = ["show", EXPERIMENT_ID, "--data-folder", str(data_dir.path), "--plan=20000 steps"]
    assert main(show) == 0
    assert not file.exists() and job.read_text() == "before\n", "only where it is asked for"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(job))
    assert main([*show, f"--markdown={file}"]) == 0
    said = capsys.readouterr().out
    text = file.read_text()
    assert job.read_text() == f"before\n{text}"
    html = READER.render(text)
    answer = unescape(re.search("<strong>(.*?)</strong>", html)[1])  # type: ignore[index]
    assert answer.startswith("Use inductor for 20,000 steps: ") and answer in said
    header, baseline, inductor = cells(text)
    columns = ["name", "verdict", "speedup (95 %)", "break-even", "parity", "memory"]
    assert header == columns
    assert baseline[:3] == ["baseline", "baseline", "\N{EN DASH}"]
    assert inductor[:2] == ["inductor", "faster"] and inductor[4] == "matches"
    assert inductor[2] in said
    assert "<details><summary>" in html and "</details>" in html
    assert "<b>" not in html and not re.search(r"[@#]\w", unescape(html.partition("<pre>")[0]))
    command = "breakeven compare --device=cpu '--name=<b>@me</b> | #1' --model=builtin:bert-tiny"
    assert f"{command} --train-samples=800" in text


@pytest.mark.heavy
def test_a_file_in_no_folder_is_refused_before_anything_runs(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    from breakeven.runner.commands import cli

    file = data_dir.path / "none" / "pr.md"
    assert cli.main(["compare", f"--markdown={file}", f"--data-folder={data_dir.path}"]) == 2
    assert f"--markdown {file}: there is no folder" in capsys.readouterr().err
    assert not data_dir.runs.exists()
