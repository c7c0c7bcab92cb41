"""A name of the hub on a machine that does not reach the hub: the hub library itself, in a process
of its own, since it reads its settings when it is imported."""

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

from breakeven.runner.project import PROJECT_ROOT

pytestmark = pytest.mark.heavy

ASK = """
import json, os, sys
from huggingface_hub import constants
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec
from breakeven.runner.worker.data.hub_access import UNREACHABLE_VARIABLE, go_offline_without_hub
answers, nobody, home = sys.argv[1:]

def ask(endpoint, model, data="builtin:reviews"):
    constants.ENDPOINT, constants.HF_HUB_OFFLINE = endpoint, False
    for name in ("HF_HUB_OFFLINE", UNREACHABLE_VARIABLE):
        os.environ.pop(name, None)
    spec = ExperimentSpec(name="hub", model=ModelSpec(source=model), data=DataSpec(source=data))
    go_offline_without_hub(spec)
    found.append([os.environ.get("HF_HUB_OFFLINE"), os.environ.get(UNREACHABLE_VARIABLE)])
    return spec

found = []
ask(nobody, "builtin:bert-tiny")
ask(nobody, home)
ask(answers, "some/model")
ask(nobody, "builtin:bert-tiny", "some/data")
missing = ask(nobody, "no-such/model")
import transformers
found.append(transformers.AutoConfig.from_pretrained("some/model").num_hidden_layers)
from breakeven.runner.worker.model.loaded_workload import load_workload
try:
    load_workload(missing)
except Exception as error:
    found.append([type(error).__name__, str(error)])
print(json.dumps(found))
"""


class Refusing(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.send_error(404)


@pytest.mark.slow
def test_only_a_hub_that_is_needed_and_does_not_answer_sets_the_library_offline_and_is_named(
    tmp_path: Path,
) -> None:
    """What is cached is found all the same."""
    copy = tmp_path / "hub" / "models--some--model"
    transformers.BertConfig(num_hidden_layers=3).save_pretrained(copy / "snapshots" / "1")
    (copy / "refs").mkdir()
    (copy / "refs" / "main").write_text("1")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{unused.getsockname()[1]}"
    environment = {
        name: value
        for name, value in os.environ.items()
        if name != "HF_HUB_OFFLINE" and not name.lower().endswith("_proxy")
    }
    environment |= {"HF_ENDPOINT": nobody, "HF_HOME": str(tmp_path)}
    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        answers = f"http://127.0.0.1:{server.server_port}"
        done = subprocess.run(
            [sys.executable, "-c", ASK, answers, nobody, str(tmp_path)],
            cwd=PROJECT_ROOT,
            env=environment,
            capture_output=True,
            text=True,
        )
        server.shutdown()
    assert done.returncode == 0 and "Retrying" not in done.stderr, done.stderr
    builtin, local, answered, data, model, layers, error = json.loads(done.stdout)
    assert builtin == local == answered == [None, None] and layers == 3
    for offline, why in (data, model):
        assert offline == "1" and why.startswith(f"{nobody}: ConnectError")
    kind, message = error
    assert kind == "NotLoaded"
    assert message.startswith(
        "model.source = 'no-such/model': no tokenizer; it is no local folder; the hub could not "
        f"be reached ({nobody}: ConnectError"
    )
    assert message.endswith(
        "and no copy is cached here. Give a local folder, or one of the built-in models"
    )
