"""A data file is looked into before anything starts: literally, quickly, whatever it holds."""

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from breakeven.runner.checks import data_file as data_checks
from breakeven.runner.checks.data_file import check_data, locate, read_head
from breakeven.runner.errors import InvalidSpec, UnusableData, WorkloadError
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.worker.data.samples import choose_images, choose_texts
from breakeven.runner.worker.probe import tasks
from tests.helpers.in_process import files_read_here
from tests.helpers.waiting import PATIENCE_SECONDS
from tests.helpers.workloads import spec

pytestmark = pytest.mark.heavy

TASKS = tasks()
LETTERS = "abcdefghij"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "hf")


@pytest.fixture
def here() -> Iterator[None]:
    """Files are read in this process."""
    with files_read_here():
        yield


def table(path: Path, texts: Any = LETTERS, labels: Any = "xy" * 5, **more: Any) -> Path:
    frame = pd.DataFrame({"text": list(texts), "label": list(labels), **more})
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    elif path.suffix == ".jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_csv(path, index=False)
    return path


def check(path: Path | str, task: str = "text_classification", **changes: Any) -> None:
    sizes = {"num_train_samples": 4, "num_eval_samples": 2, "num_test_samples": 0}
    check_data(spec(task, data=path, **{**sizes, **changes}), TASKS[task])


# Names are taken literally


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    "name", ["a[1].csv", "a*.csv", "a?.csv", "[!x].csv", "**.csv", "~a.csv", "a {1,2}%20'.csv"]
)
def test_a_name_that_is_a_pattern_is_the_file_of_that_name(tmp_path: Path, name: str) -> None:
    for other in ("a1.csv", "ab.csv", "a12.csv", "y.csv"):
        table(tmp_path / other, ["wrong"] * 10)
    table(tmp_path / name)
    check(tmp_path / name)
    samples = choose_texts(
        spec(
            "text_classification",
            data=tmp_path / name,
            num_train_samples=6,
            num_eval_samples=4,
            num_test_samples=0,
        ).data,
        seed=0,
    )
    assert {*samples["train"].samples, *samples["validation"].samples} == set(LETTERS)


@pytest.mark.usefixtures("here")
def test_a_folder_of_images_whose_name_is_a_pattern_is_that_folder(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for folder, labels in (("photos[1]", "ab"), ("photos1", "wrong")):
        for label in labels:
            (tmp_path / folder / label).mkdir(parents=True, exist_ok=True)
            for number in range(2):
                image.new("RGB", (8, 8)).save(tmp_path / folder / label / f"{number}.png")
    sizes = {"num_train_samples": 2, "num_eval_samples": 2, "num_test_samples": 0}
    images = spec("image_classification", data=tmp_path / "photos[1]", **sizes)
    check_data(images, TASKS["image_classification"])
    samples = choose_images(images.data, seed=0)
    assert {*samples["train"].labels, *samples["validation"].labels} == {"a", "b"}


@pytest.mark.parametrize("name", ["a::b.csv", "$HOME.csv"])
def test_names_that_the_reading_library_would_follow_elsewhere_are_refused_by_all(
    tmp_path: Path, name: str
) -> None:
    table(tmp_path / name)
    with pytest.raises(InvalidSpec, match="which the data library interprets; rename it"):
        check(tmp_path / name)
    with pytest.raises(WorkloadError, match="rename it"):
        choose_texts(spec("text_classification", data=tmp_path / name).data, seed=0)


# What is there


def test_a_pipe_a_folder_and_other_things_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
    (tmp_path / "notes.txt").touch()
    said = {
        "pipe.csv": "is not a regular file",
        "folder.csv": "is a folder, but this task needs a file",
        "loop.csv": "cannot be read",
        "notes.txt": r"must end in \.csv, \.jsonl",
        "nothing.csv": "no such file or folder; give its full path",
        "notes.txt/x.csv": "no such file or folder",
    }
    for name, words in said.items():
        with pytest.raises(UnusableData, match=words):
            locate(str(tmp_path / name))
    with pytest.raises(UnusableData, match="not a regular file"):
        locate("/dev/zero")


def test_a_pipe_that_took_a_files_place_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    answer = subprocess.run(
        [
            sys.executable,
            "-m",
            "breakeven.runner.worker.data.file_head",
            str(tmp_path / "pipe.csv"),
        ],
        cwd=PROJECT_ROOT,
        capture_output=True,
        timeout=PATIENCE_SECONDS,
    )
    assert "is not a regular file" in json.loads(answer.stdout)["error"]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", b"", "cannot be read as csv: No columns"),
        ("a.csv", b"text,label\n", "holds no rows"),
        ("a.csv", "text,label\nä,b\n".encode("latin-1"), "cannot be read as csv: 'utf-8' codec"),
        ("a.csv", b"text,label\na,b,c\n", "more cells than the first line has names"),
        ("a.csv", bytes(range(256)) * 50, "cannot be read as csv"),
        ("a.csv.gz", b"\x1f\x8bnonsense", "cannot be read as csv"),
        ("a.jsonl", b'{"text": "a"}\n{"text": ', "cannot be read as jsonl"),
        ("a.jsonl", b"[" * 100_000, "cannot be read as jsonl"),
        ("a.jsonl", b'"a"\n"b"\n', "must hold an object in each line"),
        ("a.json", b'{"text": ' + b"9" * 5000 + b"}", "cannot be read as json"),
        ("a.parquet", b"PAR1 not really PAR1", "cannot be read as parquet"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_reason(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidSpec, match=said) as caught:
        check(tmp_path / name)
    assert caught.value.field == "data.source" and len(str(caught.value)) < 900


def test_a_process_that_takes_too_long_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_checks, "LIMIT_SECONDS", 0.01)
    with pytest.raises(UnusableData, match="could not be read within"):
        read_head(str(table(tmp_path / "a.csv")))


# The first rows


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_columns_rows_and_their_number_are_described_for_every_kind_of_file(
    tmp_path: Path, suffix: str
) -> None:
    path = table(tmp_path / f"a{suffix}", stars=[1, 2] * 5)
    head = read_head(str(path))
    assert [(column.name, column.kind) for column in head.columns] == [
        ("text", "text"),
        ("label", "text"),
        ("stars", "number"),
    ]
    assert head.rows[:2] == (("a", "x", "1"), ("b", "y", "2")) and len(head.rows) == 5
    assert (head.num_read, head.num_rows, head.is_whole) == (10, 10, True)
    label = head.column("label")
    assert label.multiplicities == ((5, 2),)  # two labels, five times each


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", ["a.csv.gz", "disguised.csv"])
def test_a_packed_file_is_unpacked(tmp_path: Path, name: str) -> None:
    plain = table(tmp_path / "plain.csv").read_bytes()
    (tmp_path / name).write_bytes(gzip.compress(plain))
    assert read_head(str(tmp_path / name)).num_rows == 10
    check(tmp_path / name)
    texts = spec(
        "text_classification",
        data=tmp_path / name,
        num_train_samples=8,
        num_eval_samples=2,
        num_test_samples=0,
    )
    assert len(choose_texts(texts.data, seed=0)["train"].samples) == 8


@pytest.mark.usefixtures("here")
def test_a_name_that_no_specification_may_have_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"text" * 2000: "x"}))
    assert read_head(str(tmp_path / "a.jsonl")).names == ("text" * 2000,)


@pytest.mark.usefixtures("here")
def test_of_a_huge_file_only_the_beginning_is_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.csv"
    with path.open("wb") as file:
        # The first record holds a quoted line break, as texts do; the rest is a hole of 2 TB.
        file.write(b"text,label\n" + b'"one\ntwo, three",x\nfour,y\n' * 200_000)
        file.truncate(2 * 2**40)
    head = read_head(str(path))
    assert head.names == ("text", "label") and head.num_rows is None
    assert head.rows[0] == ("one\ntwo, three", "x") and 100_000 < head.num_read < 400_000
    check(path, num_train_samples=1_000_000, num_eval_samples=2)


@pytest.mark.usefixtures("here")
def test_a_bomb_of_zeros_is_read_no_further_than_any_file(tmp_path: Path) -> None:
    path = tmp_path / "bomb.csv.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"text,label\n")
        for _ in range(100):
            file.write(b"a,b\n" * 2**18)  # 100 MB
    head = read_head(str(path))
    assert head.num_rows is None and head.num_read < 2**21


def test_a_file_is_read_again_only_when_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = table(tmp_path / "a.csv")
    first = read_head(str(path))
    monkeypatch.setattr(data_checks, "HEAD_COMMAND", ("false",))
    assert read_head(str(path)) is first
    table(path, LETTERS + "k", "xy" * 5 + "x")
    with pytest.raises(UnusableData, match="exit status 1"):
        read_head(str(path))
    monkeypatch.undo()
    path.write_text("")
    with pytest.raises(UnusableData, match="cannot be read as csv"):
        read_head(str(path))


# Columns, labels and sizes


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"text_column": "body"}, "data.text_column", "is not a column of a.csv; it has text, lab"),
        ({"label_column": "stars"}, "data.label_column", "is not a column of a.csv"),
        ({"label_column": "text"}, "data.label_column", "is also the text column"),
        ({"label_column": "id"}, "data.label_column", "10 different labels in 10 rows"),
        ({"label_column": "same"}, "data.label_column", "every row has the same label"),
        (
            {"label_column": "gaps", "num_train_samples": 8},
            "data.label_column",
            "8 of 10 rows have no label",
        ),
        (
            {"num_train_samples": 9},
            "data.num_train_samples",
            "9 train + 2 evaluation samples are more than the 10 rows of a.csv",
        ),
    ],
)
def test_what_the_file_cannot_give_is_refused_by_its_field(
    tmp_path: Path, changes: dict[str, Any], field: str, said: str
) -> None:
    gaps = ["x", "y", *[None] * 8]
    path = table(tmp_path / "a.csv", id=range(10), same=["x"] * 10, gaps=gaps)
    check(path)
    with pytest.raises(InvalidSpec) as caught:
        check(path, **changes)
    assert caught.value.field == field and said in str(caught.value)


@pytest.mark.usefixtures("here")
def test_lists_and_images_are_no_texts(tmp_path: Path) -> None:
    path = table(tmp_path / "a.parquet", lists=[[1, 2]] * 10, picture=[b"\x89PNG"] * 10)
    for column, said in (("lists", "contains lists or objects"), ("picture", "contains images")):
        with pytest.raises(InvalidSpec, match=said):
            check(path, text_column=column)
    check(path, "image_classification", text_column="picture")
    with pytest.raises(InvalidSpec, match="neither images nor paths"):
        check(path, "image_classification", text_column="lists")


@pytest.mark.usefixtures("here")
def test_language_models_need_no_labels_but_texts_with_words(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", [*"abcdef", "", " ", "", ""])
    check(path, "causal_lm", label_column="nothing")
    with pytest.raises(InvalidSpec, match="more than the 6 rows with text"):
        check(path, "causal_lm", num_train_samples=5)


@pytest.mark.usefixtures("here")
def test_a_few_missing_labels_and_many_rare_ones_are_let_through_where_chance_decides(
    tmp_path: Path,
) -> None:
    texts = [f"t{n}" for n in range(400)]
    some = [None, *["x", "y"] * 199, "z"]
    path = table(tmp_path / "a.csv", texts, some)
    check(path, num_train_samples=100, num_eval_samples=20)
    # 200 labels of two rows each: of 100 held out, about half were never trained on.
    twice = table(tmp_path / "b.csv", texts, [n // 2 for n in range(400)])
    with pytest.raises(InvalidSpec, match="200 different labels in 400 rows"):
        check(twice, num_train_samples=100, num_eval_samples=100)


@pytest.mark.parametrize(
    ("labels", "said"), [([], "no folder with images"), (["cat"], "only images of 'cat'")]
)
def test_a_folder_of_images_must_have_a_folder_for_each_label(
    tmp_path: Path, labels: list[str], said: str
) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for label in labels:
        (photos / label).mkdir()
        (photos / label / "1.png").touch()
    with pytest.raises(InvalidSpec, match=said):
        check(photos, "image_classification")


def test_the_process_that_reads_is_light(tmp_path: Path) -> None:
    code = (
        "import sys, runpy; sys.argv = ['x', sys.argv[1]]; "
        "runpy.run_module('breakeven.runner.worker.data.file_head', run_name='__main__'); "
        "print(*sys.modules)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code, str(table(tmp_path / "a.csv"))],
        cwd=PROJECT_ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert not {"torch", "transformers", "datasets"} & set(answer.stdout.split())
