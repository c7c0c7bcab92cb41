"""Results of PyTorch's own benchmarks are read in as rows beside own ones."""

import json
from pathlib import Path
from typing import Any

import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.storage.__main__ import main
from breakeven.storage.errors import ImportUnusable
from breakeven.storage.exchange.imports import import_any, imported_rows

# As the harness writes it: without a tag, an older set of columns, a failed model filled with 0.
HARNESS_PERFORMANCE = """\
dev,name,batch_size,speedup,abs_latency,compilation_latency,compression_ratio,eager_peak_mem,\
dynamo_peak_mem,calls_captured,unique_graphs,graph_breaks,unique_graph_breaks,autograd_captures,\
autograd_compiles,cudagraph_skips
cuda,BertForMaskedLM,32,1.524100,41.250000,18.720000,1.110000,5.550000,5.000000,420,1,0,0,0,0,0
cuda,OPTForCausalLM,4,0.0,0.0,0,0,0,0,0,0,0,0,0,0,0
"""
HARNESS_ACCURACY = """\
dev,name,batch_size,accuracy,calls_captured,unique_graphs,graph_breaks,unique_graph_breaks,\
autograd_captures,autograd_compiles,cudagraph_skips,compilation_latency
cuda,BertForMaskedLM,1,pass,420,1,0,0,0,0,0,12.5
cuda,OPTForCausalLM,1,fail_accuracy,300,1,0,0,0,0,0,9.0
cuda,XLNetLMHeadModel,1,eager_two_runs_differ,0,0,0,0,0,0,0,0
"""


@pytest.fixture
def data_dir(tmp_path: Path) -> DataDir:
    data_dir = DataDir(tmp_path / "data")
    data_dir.path.mkdir()
    return data_dir


def file_of(data_dir: DataDir, name: str, content: str | bytes) -> Path:
    file = data_dir.path.parent / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def test_files_of_the_harness_are_read_and_replaced_by_none(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    def status(name: str, content: str) -> int:
        file = file_of(data_dir, name, content)
        return main(["data", "import", str(file), "--data-folder", str(data_dir.path)])

    for _ in range(2):
        assert status("inductor.csv", HARNESS_PERFORMANCE) == 0
    printed = capsys.readouterr().out
    assert "BertForMaskedLM" in printed and "1.524" in printed and "failed" in printed
    assert status("inductor.csv", HARNESS_ACCURACY) == 2
    assert "holds something else; rename" in capsys.readouterr().err
    rows, _ = imported_rows(data_dir)
    assert rows["name"].tolist() == ["BertForMaskedLM", "OPTForCausalLM"]
    assert rows["outcome"].tolist() == ["measured", "failed"]
    assert rows["speedup"].mean() == pytest.approx(1.5241), "0.0 takes no part in a mean"
    assert rows["compilation_latency"].tolist()[0] == 18.72
    assert rows["abs_latency"].isna().tolist() == [False, True]
    assert rows["graph_breaks"].isna().tolist() == [False, True]
    assert status("accuracy.csv", HARNESS_ACCURACY) == 0
    rows = imported_rows(data_dir)[0].query("file == 'accuracy.csv'")
    assert rows["outcome"].tolist() == ["pass", "fail_accuracy", "eager_two_runs_differ"]
    assert rows["has_failed"].tolist() == [False, True, True]
    assert rows["compilation_latency"].tolist()[0] == 12.5


def cachebench(name: str, values: list[Any], dynamic: bool = False) -> dict[str, Any]:
    """A record as `benchmarks/dynamo/cachebench.py` writes it."""
    return {
        "benchmark": {
            "name": "TorchCache Benchmark",
            "mode": "training",
            "extra_info": {"is_dynamic": dynamic, "device": "cuda"},
        },
        "model": {"name": "hf_Bert", "backend": "inductor", "origins": ["torchbench"]},
        "metric": {"name": name, "type": "OSS model", "benchmark_values": values},
    }


def hud(name: str, *values: Any, **metric: Any) -> dict[str, Any]:
    return {
        "schema_version": "v3",
        "benchmark": {
            "name": "Breakeven",
            "mode": "training",
            "dtype": "bf16",
            "extra_info": {"device": "cuda", "batch_size": "32", "tag": "inductor"},
        },
        "model": {"name": "hf_Bert", "backend": "inductor"},
        "metric": {"name": name, "benchmark_values": [*values], **metric},
    }


def accuracy(status: Any) -> dict[str, Any]:
    return hud("accuracy", extra_info={"benchmark_values": [status]})


def brought(data_dir: DataDir, records: Any) -> list[dict[str, Any]]:
    import_any(data_dir, file_of(data_dir, "some.json", json.dumps(records)))
    frame, _ = imported_rows(data_dir)
    return frame.astype(object).where(frame.notna(), None).to_dict("records")


def test_cold_times_of_cachebench_are_compile_latencies(data_dir: DataDir) -> None:
    records = [
        cachebench("Cold compile time (s)", [20.0, 22.0, 60.0]),
        cachebench("Warm compile time (s)", [5.0]),
        cachebench("Cold compile time (s)", [30.0], dynamic=True),
    ]
    static, dynamic = brought(data_dir, records)
    assert (static["name"], static["dev"], static["tag"]) == (
        "hf_Bert",
        "cuda",
        "inductor-training",
    )
    assert static["compilation_latency"] == 22.0, "the median of the repeats"
    assert (dynamic["tag"], dynamic["compilation_latency"]) == ("inductor-training-dynamic", 30.0)
    assert static["speedup"] is None and static["outcome"] == "measured"


@pytest.mark.parametrize(("status", "has_failed"), [("pass", False), ("fail_accuracy", True)])
def test_records_of_the_hud_that_belong_together_are_one_row(
    data_dir: DataDir, status: str, has_failed: bool
) -> None:
    """A failure has no numbers."""
    records = [hud("speedup", 1.5), hud("abs_latency", 41.25), accuracy(status), hud("other", 7)]
    (row,) = brought(data_dir, records)
    assert (row["tag"], row["outcome"], row["has_failed"]) == ("inductor", status, has_failed)
    numbers = (None, None) if has_failed else (1.5, 41.25)
    assert (row["speedup"], row["abs_latency"], row["batch_size"]) == (*numbers, 32)


KNOWN = r"cachebench or of PyTorch's HUD|no number that is"
BAD: dict[str, tuple[str, Any, str]] = {
    "an object": ("odd.json", {}, KNOWN),
    "numbers": ("odd.json", [1, 2], KNOWN),
    "no metric": ("odd.json", [{"benchmark": {}, "model": {}}], KNOWN),
    "nothing known": ("odd.json", [hud("other", 1)], KNOWN),
    "no numbers": ("odd.json", [hud("speedup", "1", None, True, 1e400)], KNOWN),
    "an odd status": ("odd.json", [accuracy({})], KNOWN),
    "an empty file": ("odd.json", b"", "cannot be read"),
    "very deep": ("odd.json", b"[" * 100_000, "cannot be read"),
    "half a character": ("odd.json", "\ud800".encode("utf-8", "surrogatepass"), "cannot be read"),
    "another kind": ("a.png", b"\x89PNG", "a report, an archive of run folders"),
    "other columns": (
        "a.csv",
        b"model,seconds\na,1\n",
        "has the columns model, seconds; needed are dev, name",
    ),
    "no columns": ("a.csv", b"", "it has the columns of an empty file"),
    "a word": (
        "a.csv",
        b"dev,name,batch_size,speedup\ncpu,a,8,fast\n",
        "line 2: speedup = 'fast' is no number",
    ),
    "a large batch": (
        "a.csv",
        b"dev,name,batch_size,speedup\ncpu,a,1e308,2\n",
        r"line 2: batch_size = 1e\+308 is none",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_other_files_are_refused_and_not_kept(data_dir: DataDir, case: str) -> None:
    name, content, message = BAD[case]
    content = content if isinstance(content, bytes) else json.dumps(content)
    with pytest.raises(ImportUnusable, match=message):
        import_any(data_dir, file_of(data_dir, name, content))
    assert imported_rows(data_dir)[0].empty
