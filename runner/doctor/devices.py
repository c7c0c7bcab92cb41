"""Whether torch, the driver and the devices work: torch is asked in a process of its own."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from breakeven.runner.doctor.asking import ask
from breakeven.runner.doctor.findings import Finding, Health
from breakeven.runner.texts import printable

COMMAND = (sys.executable, "-m", "breakeven.runner.worker.checkup")
LIMIT_SECONDS = 180.0
ASK_DRIVER = ("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
DRIVER_LIMIT_SECONDS = 20.0


def check_devices() -> Iterator[Finding]:
    """Torch, then each device that it sees, then the driver of those that it does not see."""
    answer = ask("torch", COMMAND, LIMIT_SECONDS)
    if isinstance(answer, str):
        remedy = f"`{sys.executable} -c 'import torch'` says more; install it anew if it fails"
        yield Finding(subject="torch", health=Health.WRONG, evidence=answer, remedy=remedy)
        return
    triton = f", triton {answer['triton']}" if answer["triton"] else ""
    evidence = f"torch {answer['torch']}{triton}"
    yield Finding(subject="torch", health=Health.OK, evidence=evidence)
    for device in answer["devices"]:
        yield _device(device)
    sees_gpu = any(one["id"] != "cpu" for one in answer["devices"])
    yield check_driver(sees_gpu=sees_gpu, torch_version=answer["torch"])


def check_driver(*, sees_gpu: bool, torch_version: str) -> Finding:
    """Whether the GPUs that the driver names are those that torch can use."""
    subject = "GPU driver"
    if shutil.which(ASK_DRIVER[0]) is None:
        evidence = "no nvidia-smi here" + ("" if sees_gpu else ", and torch sees no GPU")
        return Finding(subject=subject, health=Health.OK, evidence=evidence)
    try:
        done = subprocess.run(ASK_DRIVER, capture_output=True, text=True, errors="replace",
                              timeout=DRIVER_LIMIT_SECONDS)  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding(
            subject=subject,
            health=Health.WRONG,
            evidence=printable(error),
            remedy="`nvidia-smi` must answer; if it hangs, the machine needs a restart",
        )
    said = printable((done.stdout if done.returncode == 0 else done.stdout + done.stderr).strip())
    if done.returncode:
        return Finding(
            subject=subject,
            health=Health.WRONG,
            evidence=f"nvidia-smi: {said}",
            remedy="install the driver anew, or restart the machine after an update",
        )
    if said and not sees_gpu:
        evidence = f"the driver has {said}, and torch {torch_version} sees no GPU"
        remedy = "install a torch that is built for it: https://pytorch.org/get-started"
        return Finding(subject=subject, health=Health.WRONG, evidence=evidence, remedy=remedy)
    return Finding(subject=subject, health=Health.OK, evidence=said or "the driver names no GPU")


def _device(device: dict[str, Any]) -> Finding:
    subject = f"Device {device['id']}"
    name = printable(device["name"])
    if device["computes"]:
        evidence = f"{name} does not compute: {printable(device['computes'])}"
        remedy = "run on another device; for a GPU see what `nvidia-smi` and `dmesg` say of it"
        return Finding(subject=subject, health=Health.WRONG, evidence=evidence, remedy=remedy)
    if device["compiles"]:
        evidence = (
            f"{name} computes, but inductor does not compile: {printable(device['compiles'])}"
        )
        remedy = (
            "mend the C++ compiler" if device["id"] == "cpu" else "install triton for this torch"
        )
        return Finding(subject=subject, health=Health.WRONG, evidence=evidence, remedy=remedy)
    evidence = f"{name} computes, and what inductor compiles comes to the same"
    return Finding(subject=subject, health=Health.OK, evidence=evidence)
