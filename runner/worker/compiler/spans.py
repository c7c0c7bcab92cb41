"""When each stage of a compilation began and how long it took, as torch tells its own trace.

`ChromiumEventLogger` of `torch._dynamo.utils` hears of the end of everything that `dynamo_timed`
encloses, in whichever thread, whether somebody traces or not. Of what it hears the stages are kept
that a person thinks in; all the rest lies inside of these.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import wraps
from itertools import groupby
from typing import Any, TypedDict

import torch._dynamo
from torch._dynamo import utils as dynamo_utils

STAGES = {
    "entire_frame_compile": "dynamo",
    "build_guards": "guards",
    "create_aot_dispatcher_function": "aot",
    "entire_backward_compile": "aot",
    "inductor_compile": "lowering",
    "code_gen": "code",
    "async_compile.wait": "kernels",
    "compile_file": "kernels",
    "CachingAutotuner.benchmark_all_configs": "autotuning",
    "CachingAutotuner.coordinate_descent_tuning": "autotuning",
}
"""Torch's names of what belongs to which stage. Most stages lie in those above them."""
AUTOTUNING = ("_template_autotuning", "_template_precompiling")
"""How names end that say what is tuned: `mm_template_autotuning`."""
MAX_SPANS = 2_000
"""Kept until they are reported: a model may have very many kernels."""
NO_ID = "None"
"""What torch says outside of any compilation."""


class StageSpan(TypedDict):
    """One stage of one compilation."""

    stage: str
    name: str
    """What torch calls it."""
    start: float
    """Seconds since the epoch."""
    seconds: float
    thread: int
    """0 is the thread that compiles; others, numbered as they appear, work at the same time."""


@dataclass
class _Heard:
    compile_id: str
    span: StageSpan


class CompileSpans:
    """Listens from the making of this object on, instead of any earlier one."""

    def __init__(self) -> None:
        self._heard: list[_Heard] = []
        self._threads: dict[int, int] = {threading.get_ident(): 0}
        self._lock = threading.Lock()
        logger = dynamo_utils.get_chromium_event_logger()
        log = type(logger).log_event_end

        @wraps(log)
        def log_event_end(
            event_name: str, time_ns: int, metadata: dict[str, Any], start_time_ns: int,
            *rest: Any, **named: Any,
        ) -> None:  # fmt: skip
            log(logger, event_name, time_ns, metadata, start_time_ns, *rest, **named)
            stage = stage_of(event_name)
            if stage is not None:
                # Torch has put the id of the compilation there just now.
                compile_id = str(metadata.get("compile_id"))
                self._hear(compile_id, stage, event_name, start_time_ns, time_ns)

        # It is called within compiled code, too, and must not be compiled itself.
        logger.log_event_end = torch._dynamo.disable(log_event_end)  # type: ignore[method-assign,no-untyped-call]

    def take(self) -> Iterator[tuple[str, list[StageSpan]]]:
        """What was heard since the last call, compilation by compilation, each from its start."""
        with self._lock:
            heard, self._heard = self._heard, []
        own = [one for one in heard if one.compile_id != NO_ID]
        for one in heard:
            if one.compile_id == NO_ID:
                one.compile_id = _around(one.span, own)
        heard.sort(key=lambda one: one.compile_id)
        for compile_id, found in groupby(heard, key=lambda one: one.compile_id):
            yield compile_id, sorted((one.span for one in found), key=lambda span: span["start"])

    def _hear(self, compile_id: str, stage: str, name: str, start_ns: int, end_ns: int) -> None:
        with self._lock:
            if len(self._heard) >= MAX_SPANS:
                return
            thread = self._threads.setdefault(threading.get_ident(), len(self._threads))
            span = StageSpan(stage=stage, name=name, start=start_ns / 1e9,
                        seconds=(end_ns - start_ns) / 1e9, thread=thread)  # fmt: skip
            self._heard.append(_Heard(compile_id, span))


def stage_of(name: str) -> str | None:
    """The stage of what torch calls so; None for what lies within a stage."""
    return "autotuning" if name.endswith(AUTOTUNING) else STAGES.get(name)


def _around(span: StageSpan, others: list[_Heard]) -> str:
    """The id of a compilation that was at work when something without one began: what other
    threads do for it."""
    return next((one.compile_id for one in others
                 if one.span["start"] <= span["start"] <= one.span["start"] + one.span["seconds"]),
                NO_ID)  # fmt: skip
