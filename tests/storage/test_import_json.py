"""JSON of cachebench and of PyTorch's HUD is read in as rows beside own results."""

import json
from pathlib import Path
from typing import Any

import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.storage.errors import ImportUnusable
from breakeven.storage.exchange.imports import bring, imported


@pytest.fixture
def data_dir(tmp_path: Path) -> DataDir:
    data_dir = DataDir(tmp_path / "data")
    data_dir.path.mkdir()
    return data_dir


def cachebench(name: str, values: list[Any], dynamic: bool = False) -> dict[str, Any]:
    """A record as `benchmarks/dynamo/cachebench.py` writes it."""
    return {
        "benchmark": {"name": "TorchCache Benchmark", "mode": "training",
                      "extra_info": {"is_dynamic": dynamic, "device": "cuda"}},
        "model": {"name": "hf_Bert", "backend": "inductor", "origins": ["torchbench"]},
        "metric": {"name": name, "type": "OSS model", "benchmark_values": values},
    }  # fmt: skip


def hud(metric: dict[str, Any]) -> dict[str, Any]:
    return {
        "schema_version": "v3",
        "benchmark": {"name": "Breakeven", "mode": "training", "dtype": "bf16",
                      "extra_info": {"device": "cuda", "batch_size": "32", "tag": "inductor"}},
        "model": {"name": "hf_Bert", "backend": "inductor"},
        "metric": metric,
    }  # fmt: skip


def brought(data_dir: DataDir, name: str, records: Any) -> list[dict[str, Any]]:
    file = data_dir.path.parent / name
    file.write_text(json.dumps(records))
    bring(data_dir, file)
    frame, _ = imported(data_dir)
    return frame.astype(object).where(frame.notna(), None).to_dict("records")


def test_cold_times_of_cachebench_are_compile_latencies(data_dir: DataDir) -> None:
    records = [
        cachebench("Cold compile time (s)", [20.0, 22.0, 60.0]),
        cachebench("Warm compile time (s)", [5.0]),
        cachebench("Cold compile time (s)", [30.0], dynamic=True),
    ]
    static, dynamic = brought(data_dir, "cache.json", records)
    assert (static["name"], static["dev"], static["tag"]) == (
        "hf_Bert", "cuda", "inductor-training",
    )  # fmt: skip
    assert static["compilation_latency"] == 22.0, "the median of the repeats"
    assert (dynamic["tag"], dynamic["compilation_latency"]) == ("inductor-training-dynamic", 30.0)
    assert static["speedup"] is None and static["outcome"] == "measured"


def test_records_of_the_hud_that_belong_together_are_one_row(data_dir: DataDir) -> None:
    (row,) = brought(data_dir, "hud.json", [
        hud({"name": "speedup", "benchmark_values": [1.5]}),
        hud({"name": "abs_latency", "benchmark_values": [41.25]}),
        hud({"name": "accuracy", "benchmark_values": [],
             "extra_info": {"benchmark_values": ["pass"]}}),
        hud({"name": "something of others", "benchmark_values": [7]}),
    ])  # fmt: skip
    assert (row["speedup"], row["abs_latency"], row["batch_size"]) == (1.5, 41.25, 32)
    assert (row["tag"], row["outcome"], row["has_failed"]) == ("inductor", "pass", False)


def test_a_failure_has_no_numbers(data_dir: DataDir) -> None:
    (row,) = brought(data_dir, "hud.json", [
        hud({"name": "speedup", "benchmark_values": [1.5]}),
        hud({"name": "accuracy", "benchmark_values": [],
             "extra_info": {"benchmark_values": ["fail_accuracy"]}}),
    ])  # fmt: skip
    assert (row["outcome"], row["has_failed"], row["speedup"]) == ("fail_accuracy", True, None)


BAD = {
    "an object": {},
    "numbers": [1, 2],
    "no metric": [{"benchmark": {}, "model": {}}],
    "nothing known": [hud({"name": "other", "benchmark_values": [1]})],
    "no numbers": [hud({"name": "speedup", "benchmark_values": ["1", None, True, 1e400]})],
    "an odd status": [hud({"name": "accuracy", "extra_info": {"benchmark_values": [{}]}})],
}


@pytest.mark.parametrize("records", BAD.values(), ids=BAD)
def test_other_json_is_refused_and_not_kept(data_dir: DataDir, records: Any) -> None:
    with pytest.raises(ImportUnusable, match=r"cachebench or of PyTorch's HUD|no number that is"):
        brought(data_dir, "odd.json", records)
    assert imported(data_dir)[0].empty


@pytest.mark.parametrize("content", ["", "[" * 100_000, "\ud800".encode("utf-8", "surrogatepass")])
def test_what_is_no_json_is_refused(data_dir: DataDir, content: str | bytes) -> None:
    file = data_dir.path.parent / "odd.json"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ImportUnusable, match="cannot be read"):
        bring(data_dir, file)


def test_a_file_of_another_kind_says_what_can_be_imported(data_dir: DataDir) -> None:
    file = data_dir.path.parent / "picture.png"
    file.write_bytes(b"\x89PNG")
    with pytest.raises(ImportUnusable, match="a report, an archive of run folders"):
        bring(data_dir, file)
