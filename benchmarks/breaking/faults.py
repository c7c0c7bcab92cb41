"""The faults: each breaks a world at a random moment, and waits until what is told is true."""

from functools import partial

from benchmarks.breaking.killing import (
    hit_run,
    kill_everything,
    kill_supervisor,
    stop_supervisor,
    two_supervisors,
    wide_folder_name,
)
from benchmarks.breaking.own_code import DEVICE, OWN_CODE, own_code
from benchmarks.breaking.resources import (
    few_files,
    fill_disk,
    fill_disk_to_a_level,
    little_memory,
    set_clock,
)
from benchmarks.breaking.trials import PHASES, Fault

FAULTS = [
    Fault(name="SIGKILL of a run", act=partial(hit_run, "kill")),
    Fault(name="SIGSTOP of a run, then stop", act=partial(hit_run, "stop")),
    Fault(name="a run deaf to SIGTERM, then stop", act=partial(hit_run, "deaf")),
    Fault(name="SIGKILL of the supervisor", act=kill_supervisor),
    Fault(name="supervisor or all suspended, then resumed", act=stop_supervisor),
    Fault(name="SIGKILL of everything at once", act=kill_everything),
    Fault(name="two supervisors at once", act=two_supervisors),
    Fault(name="data folder with quotes, spaces, newlines", act=wide_folder_name),
    Fault(name="disk full for a while", act=fill_disk),
    Fault(name="disk filled to one of 50 levels", act=fill_disk_to_a_level),
    Fault(name="too many open files", act=few_files),
    Fault(name="clock set by a day", act=set_clock),
    Fault(name="too little memory (control group)", act=little_memory, is_real=True),
    *(
        Fault(name=f"{words} in phase {phase}", is_real=True, act=partial(act, phase=phase))
        for words, act in (
            ("SIGKILL of a run", partial(hit_run, "kill")),
            ("SIGSTOP of a run, then stop,", partial(hit_run, "stop")),
            ("a run deaf to SIGTERM, then stop,", partial(hit_run, "deaf")),
            ("SIGKILL of the supervisor", kill_supervisor),
        )
        for phase in PHASES
    ),
    *(
        Fault(name=f"own code that {words}", is_real=True, act=partial(own_code, body, state))
        for words, body, state in OWN_CODE
    ),
    *(
        Fault(name=words, is_real=True, act=partial(own_code, body, state))
        for words, body, state in DEVICE
    ),
]  # fmt: skip
