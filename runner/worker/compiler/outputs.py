"""Saves a compiler's graphs and generated code, and names torch's trace in the journal, on request.

Both come from torch's structured log, which costs time during compilation. So nothing listens
unless the specification requires this. The trace is torch's own file (`TORCH_TRACE`), for `tlparse`
and other tools.
"""

import logging
import re
from collections import Counter
from typing import Any

import torch._dynamo
import torch._logging._internal
from torch._dynamo.callback import callback_handler

from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.worker.compiler.observer import not_compiled
from breakeven.runner.worker.event_log import EventLog

SAVED = {
    "dynamo_output_graph": "graph of Dynamo",
    "aot_joint_graph": "joint graph",
    "aot_forward_graph": "forward graph",
    "aot_backward_graph": "backward graph",
    "aot_inference_graph": "inference graph",
    "inductor_post_grad_graph": "graph before lowering",
    "inductor_output_code": "generated code",
}
"""For torch's name of each saved output, its title."""
MAX_FILES = 400
MAX_BYTES = 64 * 2**20
"""Largest total of a run's files; later outputs are left out, and the run goes on."""
CODE_FOLDER = "artifacts/code"
TRACE_FOLDER = "artifacts/trace"
"""Torch writes here, because `runner.worker.process` sets this folder."""


def save_outputs(spec: ExperimentSpec, run: RunDir, log: EventLog) -> None:
    """Begins to save the outputs that the specification lists."""
    trace_log: logging.Logger = torch._logging._internal.trace_log
    for handler in [one for one in trace_log.handlers if isinstance(one, CodeWriter)]:
        trace_log.removeHandler(handler)  # of an earlier run in this process
    if spec.keep_code:
        trace_log.addHandler(CodeWriter(run, log))
    if spec.keep_trace:
        _record_trace_files(run, log)


class CodeWriter(logging.Handler):
    """Writes each graph and each piece of generated code to a file."""

    def __init__(self, run: RunDir, log: EventLog) -> None:
        super().__init__()
        self._run, self._log = run, log
        self._counts: Counter[str] = Counter()
        self._bytes = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Writes an output. Dynamo must not trace this, although compiled code may log."""
        torch._dynamo.disable(self._write)(record)  # type: ignore[no-untyped-call]

    def _write(self, record: logging.LogRecord) -> None:
        metadata: dict[str, Any] = getattr(record, "metadata", {})
        payload = getattr(record, "payload", None)
        # The name is either the record's kind or an artifact's name.
        artifact = metadata.get("artifact")
        named = {*metadata, artifact.get("name") if isinstance(artifact, dict) else None}
        name = next((one for one in SAVED if one in named), None)
        if name is None or not isinstance(payload, str):
            return
        content = payload.encode()
        is_full = self._bytes + len(content) > MAX_BYTES
        if is_full or self._counts.total() >= MAX_FILES:
            return
        frame, attempt = metadata.get("frame_id"), metadata.get("frame_compile_id")
        compile_id = None if frame is None else f"{frame}/{attempt}"
        stem = f"{re.sub('[^0-9]+', '-', compile_id or 'none')}-{name}"
        self._counts[stem] += 1
        number = f"-{self._counts[stem]}" if self._counts[stem] > 1 else ""
        file = f"{CODE_FOLDER}/{stem}{number}.py"
        path = self._run.path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        self._bytes += len(content)
        self._log.append("kept_file", what=SAVED[name], compile_id=compile_id, file=file,
                         bytes=len(content))  # fmt: skip


def _record_trace_files(run: RunDir, log: EventLog) -> None:
    """Records the name of each trace file once; torch creates the files when it compiles."""
    recorded: set[str] = set()

    @not_compiled
    def on_start(*_: Any) -> None:
        for path in sorted((run.path / TRACE_FOLDER).glob("*.log")):
            if path.name not in recorded:
                recorded.add(path.name)
                file = f"{TRACE_FOLDER}/{path.name}"
                log.append("kept_file", what="trace", compile_id=None, file=file)

    callback_handler.register_start_callback(on_start)
