"""What is kept of a compiler's work on request: graphs and generated code, and torch's whole trace.

Both come from torch's structured log, which costs time while it compiles: so nothing listens unless
somebody asked. The trace is torch's own file (`TORCH_TRACE`), as `tlparse` and others read it.
"""

import logging
import re
from collections import Counter
from pathlib import Path
from typing import Any

import torch._dynamo
import torch._logging._internal
from torch._dynamo.callback import CallbackArgs, callback_handler

from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.worker.compiler.observer import not_compiled
from breakeven.runner.worker.event_log import EventLog

KEPT = {
    "dynamo_output_graph": ("graph of Dynamo", "py"),
    "aot_joint_graph": ("joint graph", "py"),
    "aot_forward_graph": ("forward graph", "py"),
    "aot_backward_graph": ("backward graph", "py"),
    "aot_inference_graph": ("inference graph", "py"),
    "inductor_post_grad_graph": ("graph before lowering", "py"),
    "inductor_output_code": ("generated code", "py"),
}
"""Torch's names of what is kept, what people call it, and the end of the file's name."""
MAX_FILES = 400
MAX_BYTES = 64 * 2**20
"""Of all files of a run together: what comes later is left out, and the run goes on."""
FOLDER = "code"
TRACE_FOLDER = "trace"
"""`runner.worker.__main__` has torch write there."""


def keep_outputs(spec: ExperimentSpec, run: RunDir, log: EventLog) -> None:
    """Begins to keep what the specification says."""
    for handler in [one for one in _trace_log().handlers if isinstance(one, CodeKeeper)]:
        _trace_log().removeHandler(handler)  # an earlier run's of this process
    if spec.keep_code:
        _trace_log().addHandler(CodeKeeper(run, log))
    if spec.keep_trace:
        TraceTeller(run, log)


class CodeKeeper(logging.Handler):
    """Writes each graph and each piece of generated code into a file of its own."""

    def __init__(self, run: RunDir, log: EventLog) -> None:
        super().__init__()
        self._run, self._log = run, log
        self._counts: Counter[str] = Counter()
        self._bytes = 0

    def emit(self, record: logging.LogRecord) -> None:
        """A backward that compiles may log within compiled code; Dynamo leaves this alone."""
        torch._dynamo.disable(self._keep)(record)  # type: ignore[no-untyped-call]

    def _keep(self, record: logging.LogRecord) -> None:
        metadata: dict[str, Any] = getattr(record, "metadata", {})
        payload = getattr(record, "payload", None)
        name = next((one for one in KEPT if _tells(metadata, one)), None)
        if name is None or not isinstance(payload, str):
            return
        content = payload.encode()
        full = sum(self._counts.values()) >= MAX_FILES or self._bytes + len(content) > MAX_BYTES
        if not full:
            self._write(name, compile_id_of(metadata), content)

    def _write(self, name: str, compile_id: str | None, content: bytes) -> None:
        title, suffix = KEPT[name]
        stem = f"{re.sub('[^0-9]+', '-', compile_id or 'none')}-{name}"
        self._counts[stem] += 1
        number = f"-{self._counts[stem]}" if self._counts[stem] > 1 else ""
        file = f"artifacts/{FOLDER}/{stem}{number}.{suffix}"
        path = self._run.path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        self._bytes += len(content)
        self._log.append("kept_file", what=title, compile_id=compile_id, file=file,
                         bytes=len(content))  # fmt: skip


class TraceTeller:
    """Says once in which file torch writes its trace, which is there when something compiles."""

    def __init__(self, run: RunDir, log: EventLog) -> None:
        self._run, self._log = run, log
        self._told: set[Path] = set()
        callback_handler.register_start_callback(self._on_start)

    @not_compiled
    def _on_start(self, args: CallbackArgs) -> None:
        for path in sorted((self._run.artifacts / TRACE_FOLDER).glob("*.log")):
            if path not in self._told:
                self._told.add(path)
                file = f"artifacts/{TRACE_FOLDER}/{path.name}"
                self._log.append("kept_file", what="trace", compile_id=None, file=file)


def compile_id_of(metadata: dict[str, Any]) -> str | None:
    """`0/1`, as elsewhere; None for what belongs to no compilation."""
    frame, again = metadata.get("frame_id"), metadata.get("frame_compile_id")
    return None if frame is None else f"{frame}/{again}"


def _tells(metadata: dict[str, Any], name: str) -> bool:
    """Some are kinds of their own, others artifacts with that name."""
    artifact = metadata.get("artifact")
    return name in metadata or (isinstance(artifact, dict) and artifact.get("name") == name)


def _trace_log() -> logging.Logger:
    log: logging.Logger = torch._logging._internal.trace_log
    return log
