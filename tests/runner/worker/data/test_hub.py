"""A name of the hub on a machine that does not reach the hub: the hub library itself, in processes
of their own, since it reads its settings when it is imported."""

import json
import os
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import transformers

from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.specs.experiment import ExperimentSpec, ModelSpec, RunSpec

pytestmark = pytest.mark.heavy

ASK = """
import json, os, sys
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec
from breakeven.runner.worker.data.hub import UNREACHABLE_VARIABLE, go_offline_without_hub
model, data, cached = sys.argv[1:]
go_offline_without_hub(
    ExperimentSpec(name="hub", model=ModelSpec(source=model), data=DataSpec(source=data)))
import transformers
layers = transformers.AutoConfig.from_pretrained(cached).num_hidden_layers if cached else None
print(json.dumps([os.environ.get("HF_HUB_OFFLINE"), os.environ.get(UNREACHABLE_VARIABLE), layers]))
"""


def nobody() -> str:
    """An address of this machine at which nobody answers."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{unused.getsockname()[1]}"


def environment(endpoint: str, home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items()
            if name != "HF_HUB_OFFLINE" and not name.lower().endswith("_proxy")}  # fmt: skip
    return {**kept, "HF_ENDPOINT": endpoint, "HF_HOME": str(home)}


def asked(
    endpoint: str, home: Path, *, model: str, data: str = "builtin:reviews", cached: str = ""
) -> tuple[str | None, str | None, int | None]:
    """Whether the library was set offline and why, and the layers of the model in its cache."""
    command = [sys.executable, "-c", ASK, model, data, cached]
    done = subprocess.run(command, cwd=PROJECT_ROOT, env=environment(endpoint, home),
                          stdout=subprocess.PIPE, check=True, text=True)  # fmt: skip
    offline, why, layers = json.loads(done.stdout)
    return offline, why, layers


def test_a_hub_that_nobody_reaches_is_not_asked_and_what_is_cached_is_found(tmp_path: Path) -> None:
    copy = tmp_path / "hub" / "models--some--model"
    transformers.BertConfig(num_hidden_layers=3).save_pretrained(copy / "snapshots" / "1")
    (copy / "refs").mkdir()
    (copy / "refs" / "main").write_text("1")
    endpoint = nobody()
    offline, why, layers = asked(endpoint, tmp_path, model="some/model", cached="some/model")
    assert (offline, layers) == ("1", 3)
    assert str(why).startswith(f"{endpoint}: ConnectError")
    assert asked(endpoint, tmp_path, model="builtin:bert-tiny", data="some/data")[0] == "1"


def test_what_is_here_needs_no_hub(tmp_path: Path) -> None:
    for model in ("builtin:bert-tiny", str(tmp_path)):
        assert asked(nobody(), tmp_path, model=model) == (None, None, None)


def test_a_hub_that_answers_whatever_it_says_is_asked(tmp_path: Path) -> None:
    class Refusing(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_error(404)

    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_port}"
        assert asked(endpoint, tmp_path, model="some/model") == (None, None, None)
        server.shutdown()


def test_a_run_says_in_one_sentence_that_the_hub_could_not_be_reached(tmp_path: Path) -> None:
    spec = ExperimentSpec(name="hub", model=ModelSpec(source="no-such/model"), controls=0)
    run_spec = RunSpec(experiment_id="hub", experiment=spec, variant=spec.variants[0])
    run = RunDir(tmp_path / "runs" / run_spec.run_id)
    run.write_spec(run_spec)
    command = [sys.executable, "-m", "breakeven.runner.worker", str(run.path)]
    endpoint = nobody()
    done = subprocess.run(command, cwd=PROJECT_ROOT, env=environment(endpoint, tmp_path),
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 1 and "Retrying" not in done.stderr
    (error,) = (event for line in run.events_file.read_text().splitlines()
                if (event := json.loads(line))["kind"] == "error")  # fmt: skip
    assert error["error"] == "NotLoaded"
    assert error["message"].startswith(
        "model.source = 'no-such/model': no tokenizer; it is no local folder; the hub could not "
        f"be reached ({endpoint}: ConnectError"
    )
    assert error["message"].endswith(
        "and no copy is cached here. Give a local folder, or one of the built-in models"
    )
