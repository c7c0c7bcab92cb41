"""Whether what Breakeven runs on is installed, and can compile."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from breakeven.runner.doctor.findings import Finding, Health
from breakeven.runner.notifications import NOTIFY_VARIABLE, Notifier
from breakeven.runner.project import PACKAGE
from breakeven.runner.texts import printable

REQUIREMENTS = PACKAGE / "requirements.txt"
PYTHONS = ((3, 11), (3, 13))
"""The first and the last that are supported."""
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;#]+)")
RUNNER_NEEDS = ("torch", "transformers", "datasets")
"""Without the others a machine still measures; it shows nothing."""
PROGRAM = """
#include <cmath>
#include <vector>
extern "C" double kernel(double x) { return std::vector<double>{std::sin(x)}.back(); }
"""
COMPILE_LIMIT_SECONDS = 60.0


def check_python() -> Finding:
    here = sys.version_info[:2]
    evidence = f"Python {sys.version.split()[0]} in {sys.executable}"
    if PYTHONS[0] <= here <= PYTHONS[1]:
        return Finding(subject="Python", health=Health.OK, evidence=evidence)
    spoken = [".".join(map(str, version)) for version in PYTHONS]
    remedy = f"Breakeven is made for Python {spoken[0]} to {spoken[1]}: `make PYTHON=python3.13`"
    return Finding(subject="Python", health=Health.DOUBTFUL, evidence=evidence, remedy=remedy)


def check_versions(requirements: Path = REQUIREMENTS) -> Finding:
    """Installed packages against the versions that this version of Breakeven was tested with."""
    missing, other, num_right = [], [], 0
    for name, wanted in _pinned(requirements):
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            missing.append(name)
            continue
        # A build of torch for a device says so behind a plus sign.
        if found.split("+")[0] == wanted.split("+")[0]:
            num_right += 1
        else:
            other.append(f"{name} {found} instead of {wanted}")
    remedy = f"`{sys.executable} -m pip install -r {requirements.name}`"
    subject = "Packages"
    if missing:
        gravely = Health.WRONG if set(missing) & set(RUNNER_NEEDS) else Health.DOUBTFUL
        said = "; ".join([f"not installed: {', '.join(missing)}", *other])
        return Finding(subject=subject, health=gravely, evidence=said, remedy=remedy)
    if other:
        return Finding(subject=subject, health=Health.DOUBTFUL, evidence="; ".join(other),
                       remedy=remedy)  # fmt: skip
    evidence = f"{num_right} of {num_right} as {requirements.name} has them"
    return Finding(subject=subject, health=Health.OK, evidence=evidence)


def check_notifications(*, notify: bool = False) -> Finding:
    """Whether Apprise can use the addresses, and, where `notify`, whether a test arrives."""
    subject, notifier = "Notifications", Notifier()
    evidence = f"addresses: {', '.join(notifier.service_names) or 'none'} ({NOTIFY_VARIABLE})"
    problems = list(notifier.problems)
    if notify and notifier.is_any:
        failed = notifier.send_test()
        problems += [f"the test did not arrive: {failed}"] if failed else []
        evidence += "" if failed else "; the test arrived"
    if problems:
        return Finding(subject=subject, health=Health.WRONG,
                       evidence="; ".join([evidence, *problems]),
                       remedy="docs/operating.md has examples of addresses")  # fmt: skip
    return Finding(subject=subject, health=Health.OK, evidence=evidence)


def check_compiler() -> Finding:
    """Whether a C++ compiler compiles: one that is there and lacks its headers does not."""
    subject = "C++ compiler"
    asked = os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")
    found = shutil.which(asked)
    remedy = (
        "`apt install g++` (Debian, Ubuntu), `dnf install gcc-c++` (Fedora), "
        "`xcode-select --install` (macOS)"
    )
    if found is None:
        evidence = f"there is no {printable(asked)}, and inductor compiles with it for the CPU"
        return Finding(subject=subject, health=Health.DOUBTFUL, evidence=evidence, remedy=remedy)
    problem = _problem_of(found)
    if problem:
        evidence = f"{printable(found)} does not compile a program of four lines: {problem}"
        return Finding(subject=subject, health=Health.WRONG, evidence=evidence, remedy=remedy)
    return Finding(subject=subject, health=Health.OK, evidence=f"{printable(found)} compiles")


def _problem_of(compiler: str) -> str:
    """What a compiler says against a small library; empty if nothing."""
    with tempfile.TemporaryDirectory(prefix="breakeven-doctor-") as folder:
        source, library = Path(folder, "kernel.cpp"), Path(folder, "kernel.so")
        source.write_text(PROGRAM)
        command = [compiler, "-shared", "-fPIC", str(source), "-o", str(library)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace",
                                  timeout=COMPILE_LIMIT_SECONDS)  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            return printable(error)
        if done.returncode or not library.exists():
            return printable(done.stderr.strip() or f"exit status {done.returncode}", 300)
    return ""


def _pinned(requirements: Path) -> Iterator[tuple[str, str]]:
    for line in requirements.read_text().splitlines():
        if found := PINNED.match(line.strip()):
            yield found[1], found[2]
