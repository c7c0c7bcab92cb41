"""Checks of the installation and the devices; a separate process imports torch."""

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import Any

from breakeven.runner.doctor.health_finding import Finding, doubtful, ok, wrong
from breakeven.runner.errors import ProbeFailed
from breakeven.runner.extras import how_to_install
from breakeven.runner.machine.capabilities import ask_torch
from breakeven.runner.notifications import NOTIFY_VARIABLE, Notifier
from breakeven.runner.project import IS_CHECKOUT, PACKAGE, PROJECT_ROOT
from breakeven.runner.texts import printable

REQUIREMENTS = PROJECT_ROOT / "requirements.txt"
"""The versions of a checkout."""
PYTHONS = ((3, 11), (3, 14))
"""The first and the last supported version."""
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


def required_packages() -> tuple[list[str], str]:
    """The packages that this installation asks for, and what installs them: the exact versions of a
    checkout, or else the ranges of the installed package with those of its extras."""
    if IS_CHECKOUT:
        lines = map(str.strip, REQUIREMENTS.read_text().splitlines())
        listed = [line for line in lines if line and not line.startswith("#")]
        return listed, f"pip install -r {REQUIREMENTS.name}"
    return metadata.requires(PACKAGE.name) or [], how_to_install("all")


def check_packages(required: Sequence[str], how: str) -> Finding:
    """Compares installed packages with those that are required. A part of Breakeven that lacks an
    extra says so itself."""
    from packaging.requirements import Requirement  # here: a Python with torch alone may lack it

    missing, optional, other, fit = list[str](), list[str](), list[str](), 0
    for requirement in map(Requirement, required):
        of_extra = requirement.marker is not None and "extra" in str(requirement.marker)
        try:
            installed = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            (optional if of_extra else missing).append(requirement.name)
            continue
        if requirement.specifier.contains(installed, prereleases=True):
            fit += 1
        else:
            other.append(f"{requirement.name} {installed} instead of {requirement.specifier}")
    left = ", ".join(dict.fromkeys(optional))
    parts = [*other, f"without extras: {left}"] if left else other
    if not missing and not other:
        return ok(
            "Packages", "; ".join([f"all {fit} have the versions that are asked for", *parts])
        )
    finding = wrong if missing else doubtful
    evidence = [f"not installed: {', '.join(missing)}"] if missing else []
    return finding("Packages", "; ".join([*evidence, *parts]), f"`{how}`")


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
