"""Checks of the installation and the devices; a separate process imports torch."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from breakeven.runner.doctor.health_finding import Finding, doubtful, ok, wrong
from breakeven.runner.errors import ProbeFailed
from breakeven.runner.machine.capabilities import ask_torch
from breakeven.runner.notifications import NOTIFY_VARIABLE, Notifier
from breakeven.runner.project import PACKAGE
from breakeven.runner.texts import printable

REQUIREMENTS = PACKAGE / "requirements.txt"
PYTHONS = ((3, 11), (3, 13))
"""The first and the last supported version."""
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;#]+)")
RUNNER_NEEDS = {"torch", "transformers", "datasets"}
"""Packages that measurements need; the others only show results."""
CHECKUP = (sys.executable, "-m", "breakeven.runner.worker.probe", "try")
ASK_DRIVER = ("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
DRIVER_SECONDS = 20.0
INSTALL_COMPILER = (
    "`apt install g++` (Debian, Ubuntu), `dnf install gcc-c++` (Fedora), `xcode-select --install` "
    "(macOS)"
)


def check_python() -> Finding:
    evidence = f"Python {sys.version.split()[0]} in {sys.executable}"
    if PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]:
        return ok("Python", evidence)
    first, last = (".".join(map(str, version)) for version in PYTHONS)
    remedy = f"Breakeven is made for Python {first} to {last}: `make PYTHON=python3.13`"
    return doubtful("Python", evidence, remedy)


def check_packages(requirements: Path = REQUIREMENTS) -> Finding:
    """Compares installed packages with the versions that Breakeven was tested with."""
    missing, other = [], []
    lines = map(str.strip, requirements.read_text().splitlines())
    pinned = [(match[1], match[2]) for line in lines if (match := PINNED.match(line))]
    for name, wanted in pinned:
        try:
            installed = metadata.version(name)
        except metadata.PackageNotFoundError:
            missing.append(name)
            continue
        # Builds of torch name their device after a plus sign.
        if installed.split("+")[0] != wanted.split("+")[0]:
            other.append(f"{name} {installed} instead of {wanted}")
    if not missing and not other:
        return ok("Packages", f"all {len(pinned)} have the versions in {requirements.name}")
    evidence = [f"not installed: {', '.join(missing)}"] if missing else []
    finding = wrong if RUNNER_NEEDS.intersection(missing) else doubtful
    remedy = f"`{sys.executable} -m pip install -r {requirements.name}`"
    return finding("Packages", "; ".join([*evidence, *other]), remedy)


def check_notifications(*, notify: bool = False) -> Finding:
    """Checks whether Apprise can use the addresses and, with `notify`, whether a test arrives."""
    notifier = Notifier()
    evidence = f"addresses: {', '.join(notifier.service_names) or 'none'} ({NOTIFY_VARIABLE})"
    problems = list(notifier.problems)
    if notify and notifier.has_addresses:
        failed = notifier.send_test()
        problems += [f"the test did not arrive: {failed}"] if failed else []
        evidence += "" if failed else "; the test arrived"
    if not problems:
        return ok("Notifications", evidence)
    remedy = "docs/operating.md has examples of addresses"
    return wrong("Notifications", "; ".join([evidence, *problems]), remedy)


def check_devices() -> Iterator[Finding]:
    """Checks torch, each device that torch sees, and the GPU driver."""
    try:
        answer = ask_torch(CHECKUP, "torch gave no answer")
    except ProbeFailed as error:
        remedy = f"`{sys.executable} -c 'import torch'` shows details; if it fails, reinstall torch"
        yield wrong("torch", printable(" ".join(str(error).split())), remedy)
        return
    triton = f", triton {answer['triton']}" if answer["triton"] else ""
    yield ok("torch", f"torch {answer['torch']}{triton}")
    for device in answer["devices"]:
        yield _device(device)
    sees_gpu = any(device["id"] != "cpu" for device in answer["devices"])
    yield check_driver(sees_gpu=sees_gpu, torch_version=answer["torch"])


def _device(device: dict[str, Any]) -> Finding:
    subject, name = f"Device {device['id']}", printable(device["name"])
    if device["computes"]:
        evidence = f"{name} does not compute: {printable(device['computes'])}"
        remedy = "run on another device; for a GPU see `nvidia-smi` and `dmesg`"
        return wrong(subject, evidence, remedy)
    if device["compiles"]:
        problem = printable(device["compiles"])
        evidence = f"{name} computes, but inductor does not compile: {problem}"
        remedy = "install triton for this torch"
        if device["id"] == "cpu":
            remedy = f"inductor needs a C++ compiler with its headers: {INSTALL_COMPILER}"
        return wrong(subject, evidence, remedy)
    return ok(subject, f"{name} computes, and code of inductor computes the same")


def check_driver(*, sees_gpu: bool, torch_version: str) -> Finding:
    """Checks whether torch can use the GPUs that the driver lists."""
    subject = "GPU driver"
    if shutil.which(ASK_DRIVER[0]) is None:
        return ok(subject, "no nvidia-smi here" + ("" if sees_gpu else ", and torch sees no GPU"))
    try:
        done = subprocess.run(
            ASK_DRIVER, capture_output=True, text=True, errors="replace", timeout=DRIVER_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        remedy = "`nvidia-smi` must answer; if it hangs, the machine needs a restart"
        return wrong(subject, printable(error), remedy)
    output = printable((done.stdout + (done.stderr if done.returncode else "")).strip())
    if done.returncode:
        remedy = "reinstall the driver, or restart the machine after an update"
        return wrong(subject, f"nvidia-smi: {output}", remedy)
    if output and not sees_gpu:
        evidence = f"the driver lists {output}, but torch {torch_version} sees no GPU"
        remedy = "install a torch built for this driver: https://pytorch.org/get-started"
        return wrong(subject, evidence, remedy)
    return ok(subject, output or "the driver lists no GPU")
