"""The faults: each breaks a world at a random moment and waits until reported states are true."""

import os
import shutil
from functools import partial
from importlib.util import find_spec

from benchmarks.breaking.dashboards import hit_dashboard
from benchmarks.breaking.killing import (
    hit_rank,
    hit_run,
    kill_everything,
    kill_supervisor,
    stop_supervisor,
    two_supervisors,
    wide_folder_name,
)
from benchmarks.breaking.own_code import (
    CUDA,
    DEVICE,
    ENDLESS_HOW,
    OWN_CODE,
    endless_compile,
    full_in_capture,
    own_code,
)
from benchmarks.breaking.resources import (
    MEMORY_GROUPS,
    few_files,
    fill_disk,
    fill_disk_to_a_level,
    little_memory,
    set_clock,
)
from benchmarks.breaking.slow_disk import slow_disk, used_up_quota
from benchmarks.breaking.trials import CAPTURE, PHASES, Fault
from benchmarks.breaking.world import HAS_DUCKDB

ON_CUDA = ("captured graphs", CAPTURE)
"""Phases that exist only on a CUDA device."""
RANKS = [phase for phase in PHASES if phase not in ("start", *ON_CUDA)]
"""Phases with ranks; Gloo on the CPU, so that one machine has several."""

FAULTS = [
    Fault(name="SIGKILL of a run", act=partial(hit_run, "kill")),
    Fault(name="SIGSTOP of a run, then stop", act=partial(hit_run, "stop")),
    Fault(name="a run deaf to SIGTERM, then stop", act=partial(hit_run, "deaf")),
    Fault(name="SIGKILL of the supervisor", act=kill_supervisor),
    Fault(name="SIGKILL of the dashboard", act=partial(hit_dashboard, "kill"), needs="dashboard"),
    Fault(
        name="SIGSTOP of the dashboard for a while",
        act=partial(hit_dashboard, "stop"),
        needs="dashboard",
    ),
    Fault(name="supervisor or all suspended, then resumed", act=stop_supervisor),
    Fault(name="SIGKILL of everything at once", act=kill_everything),
    Fault(name="two supervisors at once", act=two_supervisors),
    Fault(name="data folder with quotes, spaces, newlines", act=wide_folder_name),
    Fault(name="disk full for a while", act=fill_disk, needs="mounting"),
    Fault(name="disk filled to one of 50 levels", act=fill_disk_to_a_level, needs="mounting"),
    Fault(name="a disk that is slow for a while", act=partial(slow_disk, False), needs="compiler"),
    Fault(name="a disk that is slow, then stop", act=partial(slow_disk, True), needs="compiler"),
    Fault(name="quota used up for a while", act=used_up_quota, needs="compiler"),
    Fault(name="too many open files", act=few_files),
    Fault(name="clock set by a day", act=set_clock),
    Fault(
        name="too little memory (control group)",
        act=little_memory,
        is_real=True,
        needs="memory groups",
        on_device=False,
    ),
    *(
        Fault(
            name=f"{words} in phase {phase}",
            is_real=True,
            act=partial(act, phase=phase),
            needs="CUDA" if phase in ON_CUDA else None,
        )
        for words, act in (
            ("SIGKILL of a run", partial(hit_run, "kill")),
            ("SIGSTOP of a run, then stop,", partial(hit_run, "stop")),
            ("a run deaf to SIGTERM, then stop,", partial(hit_run, "deaf")),
            ("SIGKILL of the supervisor", kill_supervisor),
        )
        for phase in (*PHASES, CAPTURE)
    ),
    *(
        Fault(
            name=f"{words} in phase {phase}",
            is_real=True,
            on_device=False,
            act=partial(hit_rank, how, phase=phase),
        )
        for words, how in (("SIGKILL of a rank", "kill"), ("SIGSTOP of a rank, then stop,", "stop"))
        for phase in RANKS
    ),
    *(
        Fault(
            name=f"a compilation that {words} without end{then}",
            is_real=True,
            act=partial(endless_compile, how, then.endswith("stop")),
        )
        for words, how in ENDLESS_HOW.items()
        for then in (", then stop", "")
    ),
    *(
        Fault(name=f"own code that {words}", is_real=True, act=partial(own_code, body, state))
        for words, body, state in OWN_CODE
    ),
    *(
        Fault(name=words, is_real=True, act=partial(own_code, body, state), on_device=False)
        for words, body, state in DEVICE
    ),
    *(
        Fault(name=words, is_real=True, act=partial(own_code, body, state), needs="CUDA")
        for words, body, state in CUDA
    ),
    Fault(name=f"CUDA out of memory in {CAPTURE}", is_real=True, act=full_in_capture, needs="CUDA"),
]


def lacks(need: str | None, device: str) -> bool:
    """Whether a fault, with real trainings on that device, cannot be tried on this machine."""
    match need:
        case None:
            return False
        case "dashboard":
            return not HAS_DUCKDB or find_spec("streamlit") is None
        case "CUDA":
            return not device.startswith("cuda")
        case "mounting":
            return os.geteuid() != 0
        case "compiler":
            return shutil.which("cc") is None
        case "memory groups":
            return os.geteuid() != 0 or not MEMORY_GROUPS.exists()
    raise ValueError(f"nobody knows what {need!r} is")
