"""Reads a training's command as people type it: `torchrun --nproc-per-node 2 train.py --lr 1`.

Runs execute the program inside of their own processes. So what a launcher would do is found out
here: the file, its arguments, the Python, environment variables and the number of ranks. Whatever
cannot be done so is refused, with the reason and what to do.
"""

import os
import re
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from breakeven.runner.arguments.other_pythons import accelerate_launch, located, python_of
from breakeven.runner.errors import RunnerError
from breakeven.runner.machine.run_variables import PASS_VARIABLE
from breakeven.runner.masking import is_secret_name
from breakeven.runner.specs.values import nearest
from breakeven.runner.start_folders import IN_ENVIRONMENT, executable

ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
PYTHON = re.compile(r"python(\d(\.\d+)?t?)?")
SHEBANG = re.compile(r"#!\s*(?:/\S*/env\s+(?:-S\s+)?)?(\S+)")
LONG_SHEBANG = re.compile(r"#!/bin/sh\n'''exec' \"?([^\"\n]+?)\"? \"\$0\"")
"""How installers write a path that is too long for the first line, or has spaces."""
ELSEWHERE = (
    "starts processes where Breakeven cannot measure them; install Breakeven there, and give it "
    "the command that {0} would start"
)
SHELL = "runs a shell, in which Breakeven cannot find the training; give it the python command"
LEAVE_OUT = "starts another program; leave it out"
REFUSED = {
    **dict.fromkeys(("mpirun", "mpiexec", "horovodrun", "srun", "sbatch", "ssh"), ELSEWHERE),
    **dict.fromkeys(("docker", "podman", "singularity", "apptainer", "ray"), ELSEWHERE),
    **dict.fromkeys(("bash", "sh", "zsh", "fish", "make"), SHELL),
    **dict.fromkeys(("nohup", "time", "nice", "taskset", "numactl", "sudo"), LEAVE_OUT),
    "deepspeed": "starts ranks that Breakeven cannot time; give it the script, or torchrun with it",
    "jupyter": "runs a notebook, which has no steps of its own; save it as a Python file",
}
LAUNCHERS = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torch.distributed.launch",
    "accelerate.commands.launch": "accelerate launch",
}
"""Launchers by the modules that `python -m` would run."""
MORE_NODES = "needs several machines; a script is measured on one: --nnodes=1"


@dataclass(frozen=True, kw_only=True)
class TypedCommand:
    """What a typed command runs, and how."""

    file: Path
    """The script, or the file of the module."""
    module: str = ""
    """How the file starts, as in `ScriptSpec.module`."""
    arguments: tuple[str, ...] = ()
    python: str | None = None
    """The Python that executes it; None for Breakeven's own."""
    variables: Mapping[str, str] = field(default_factory=dict)
    ranks: int = 1


@dataclass(frozen=True)
class _Options:
    """Options that a program takes before its operand."""

    values: Mapping[str, str]
    """Those with a value; each has the reason for which it is refused, or else an empty text."""
    flags: Mapping[str, str]

    def read(self, program: str, words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
        """The given options with their values, and the words after them. Raises `RunnerError`."""
        given: dict[str, str] = {}
        rest = [*words]
        while rest and rest[0].startswith("-") and rest[0] != "-":
            word = rest.pop(0)
            if word == "--":
                break
            name, equals, value = word.partition("=")
            name = name.replace("_", "-")
            if name in self.values and not equals:
                if not rest:
                    raise RunnerError(f"{program}: {word} needs a value")
                value = rest.pop(0)
            if name not in self.values and name not in self.flags:
                known = [*self.values, *self.flags]
                raise RunnerError(
                    f"{program}: {word} is an option that Breakeven does not know; leave it out"
                    f"{nearest(name, known)}"
                )
            if reason := {**self.values, **self.flags}[name]:
                raise RunnerError(f"{program} {word}: {reason}")
            given[name] = value
        return given, rest


def _options(values: str, flags: str, refused: Mapping[str, str] | None = None) -> _Options:
    refused = refused or {}
    return _Options(
        {name: refused.get(name, "") for name in values.split()},
        {name: refused.get(name, "") for name in flags.split()},
    )


NOT_PYTHON = "starts a program that is no Python file"
TORCHRUN = _options(
    "--nproc-per-node --nnodes --node-rank --rdzv-backend --rdzv-endpoint --rdzv-id --rdzv-conf "
    "--max-restarts --monitor-interval --start-method --role --log-dir -r --redirects -t --tee "
    "--local-ranks-filter --master-addr --master-port --local-addr --logs-specs --numa-binding",
    "--standalone --no-python --run-path -m --module",
    {"--no-python": NOT_PYTHON},
)
OTHER_FOLDER = "starts in another folder; change to that folder first"
FLEETING = "makes an environment that is gone afterwards; add the package to the project"
CHANGES_VARIABLES = "sets variables from a file; write them before the command, as NAME=VALUE"
RUNNERS = {
    "uv": _options(
        "--project --package -p --python --extra --no-extra --group --only-group --no-group "
        "--directory --env-file --with --with-editable --with-requirements",
        "--frozen --locked --no-sync --offline --all-extras --all-groups --no-dev --dev --active "
        "--exact --no-project --quiet -q --isolated -m --module -s --script",
        {
            "--directory": OTHER_FOLDER,
            "--env-file": CHANGES_VARIABLES,
            "--isolated": FLEETING,
            **dict.fromkeys(("--with", "--with-editable", "--with-requirements"), FLEETING),
        },
    ),
    "poetry": _options("-C --directory", "-q --quiet -n", {"-C": OTHER_FOLDER}),
    "pdm": _options("", ""),
    "pipenv": _options("", ""),
    "conda": _options("-n --name -p --prefix", "--no-capture-output --live-stream -q"),
}
"""Programs that start others in the environment of a project, as in `uv run`."""
INLINE = "# /// script"
OPTION_VARIABLES = {
    "B": "PYTHONDONTWRITEBYTECODE",
    "O": "PYTHONOPTIMIZE",
    "P": "PYTHONSAFEPATH",
    "s": "PYTHONNOUSERSITE",
}
"""Variables that do what options of Python do."""
HARMLESS = "uq"
"""Options of Python that change nothing in a run."""
EXTENDED = {"dev": "PYTHONDEVMODE", "utf8": "PYTHONUTF8", "faulthandler": "PYTHONFAULTHANDLER"}
NO_OPTIONS = {
    "c": "the code has no file; write it into a Python file",
    "i": "a run has no terminal to go on in; leave it out",
    "E": "a run needs its environment variables; leave it out",
    "I": "a run needs its environment variables; leave it out",
}
VISIBLE = "CUDA_VISIBLE_DEVICES"
ONE_RANK = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "GROUP_RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "0",
    "TORCHELASTIC_RUN_ID": "none",
}
"""What torchrun sets for a process without others. Port 0 is any free one."""


def read_command(words: Sequence[str], num_gpus: int, python: str | None = None) -> TypedCommand:
    """What a typed command runs. `num_gpus`: GPUs of this machine; `python`: a Python, or the
    folder of its environment, in which the command starts. Raises `RunnerError`."""
    rest = [*words]
    variables: dict[str, str] = {}
    if rest[:1] == ["--"]:
        rest.pop(0)
    if rest[:1] == ["env"]:
        rest.pop(0)
        if rest and rest[0].startswith("-"):
            raise RunnerError(f"env {rest[0]}: a run keeps its variables; leave this option out")
    while rest and (match := ASSIGNMENT.fullmatch(rest[0])):
        if is_secret_name(match[1]):
            raise RunnerError(
                f"{match[1]} is a secret, which no experiment stores: export it, and name it in "
                f"{PASS_VARIABLE}={match[1]}, so that runs get it"
            )
        variables[match[1]] = match[2]
        rest.pop(0)
    if not rest:
        raise RunnerError("a command is missing: breakeven run [options] train.py --epochs 3")
    command = _Reader(num_gpus, variables, python).read(rest)
    if command.python is not None and _is_own(command.python):
        return replace(command, python=None)
    return command


def _is_own(python: str) -> bool:
    """Whether a Python is the one that executes Breakeven, or another name of it."""
    path, own = Path(os.path.abspath(python)), Path(sys.executable)
    return path.parent == own.parent and path.resolve() == own.resolve()


def active_python(variables: Mapping[str, str]) -> str | None:
    """The Python of the environment that is active in a terminal; None without one."""
    folder = variables.get("VIRTUAL_ENV") or variables.get("CONDA_PREFIX")
    return str(Path(folder, IN_ENVIRONMENT)) if folder else None


class _Reader:
    """Reads the words of a command after its variables."""

    def __init__(self, num_gpus: int, variables: Mapping[str, str], python: str | None) -> None:
        self._num_gpus = num_gpus
        self._variables = dict(variables)
        self._folders = [
            folder
            for folder in self._variables.get("PATH", os.environ.get("PATH", "")).split(os.pathsep)
            if folder
        ]
        self._python: str | None = None
        """The Python of the environment in which the program starts; None if none was named."""
        if python is not None:
            self._python = self._answer("", "", str(executable(python, Path.cwd())))["python"]
            self._folders.insert(0, str(Path(self._python).parent))

    def read(self, words: Sequence[str]) -> TypedCommand:
        """What the words run. Raises `RunnerError`."""
        program, rest = words[0], words[1:]
        name = Path(program).name
        if name in REFUSED or name.endswith(".sh"):
            why = REFUSED.get(name, SHELL).format(name)
            raise RunnerError(f"{program} {why}: breakeven run python train.py")
        if name in RUNNERS and rest[:1] == ["run"]:
            return self._in_environment(program, rest[1:])
        if PYTHON.fullmatch(name):
            self._python = self._answer("", "", self._path_of(program))["python"]
            return self._python_command(rest)
        if name == "torchrun":
            self._python = self._python_of_command(program)
            return self._torchrun("torchrun", rest)
        if name == "accelerate-launch" or (name == "accelerate" and rest[:1] == ["launch"]):
            self._python = self._python_of_command(program)
            return self._accelerate(rest[name == "accelerate" :])
        if name.endswith(".py") or (os.sep in program and not os.access(program, os.X_OK)):
            command = self._script(program, rest)
            return replace(command, python=command.python or self._active_with_torch())
        return self._command(program, rest)

    def _active_with_torch(self) -> str | None:
        """The Python of the active environment if it has torch: a script whose command names no
        Python starts there. `base` of conda is always active, and may have nothing."""
        python = active_python(os.environ)
        if python is None or _is_own(python) or not os.path.isfile(python):
            return None
        return python if located(python, "", "", self._variables)["torch"] else None

    def _in_environment(self, tool: str, words: Sequence[str]) -> TypedCommand:
        name = Path(tool).name
        given, rest = RUNNERS[name].read(f"{name} run", words)
        if not rest:
            raise RunnerError(f"{name} run: a command is missing")
        if name == "uv" and rest[0].endswith(".py"):
            file = _existing(rest[0])
            if INLINE in file.read_text(errors="replace"):
                raise RunnerError(
                    f"uv makes an environment for {file} alone: make it with `uv sync --script "
                    f'{file}`, then `breakeven run "$(uv python find --script {file})" {file}`'
                )
        starts = {"-m": "-m", "--module": "-m", "-s": "", "--script": ""}
        inner = [start for flag, start in starts.items() if flag in given]
        options = [*words[: len(words) - len(rest)]]
        options = [word for word in options if word not in starts and word != "--"]
        self._python = python_of([self._path_of(tool), "run", *options])
        self._folders.insert(0, str(Path(self._python).parent))
        if inner:
            return self._python_command([*filter(None, inner[:1]), *rest])
        return self.read(rest)

    def _python_command(self, words: Sequence[str]) -> TypedCommand:
        """What follows `python`: options, then a file or `-m MODULE`."""
        rest = [*words]
        while rest and rest[0].startswith("-"):
            word = rest.pop(0)
            if word == "-":
                raise RunnerError("python -: a run has no standard input; write a Python file")
            if word == "--":
                break
            if word.startswith("--"):
                raise RunnerError(f"python {word}: leave this option out; it starts no training")
            for place, letter in enumerate(word[1:], 1):
                if letter in "mWX":
                    value = word[place + 1 :] or (rest.pop(0) if rest else "")
                    if not value:
                        raise RunnerError(f"python -{letter} needs a value")
                    if letter == "m":
                        return self._module(value, rest)
                    self._set_option(letter, value)
                    break
                self._set_option(letter, "")
        if not rest:
            raise RunnerError("python without a file starts no training: name a Python file")
        return self._script(rest[0], rest[1:])

    def _set_option(self, letter: str, value: str) -> None:
        if letter in OPTION_VARIABLES:
            name = OPTION_VARIABLES[letter]
            self._variables[name] = "2" if letter == "O" and name in self._variables else "1"
        elif letter == "W":
            before = self._variables.get("PYTHONWARNINGS")
            self._variables["PYTHONWARNINGS"] = f"{before},{value}" if before else value
        elif letter == "X" and value.partition("=")[0] in EXTENDED:
            name, _, number = value.partition("=")
            self._variables[EXTENDED[name]] = number or "1"
        elif letter not in HARMLESS:
            why = NO_OPTIONS.get(letter, "a run would not have this option; leave it out")
            raise RunnerError(f"python -{letter}{value and f' {value}'}: {why}")

    def _script(self, path: str, arguments: Sequence[str]) -> TypedCommand:
        return self._made(_existing(path), "", arguments)

    def _module(self, name: str, arguments: Sequence[str]) -> TypedCommand:
        """What `python -m` runs."""
        if name in LAUNCHERS:
            launcher = LAUNCHERS[name]
            if launcher == "accelerate launch":
                return self._accelerate(arguments)
            if launcher != "torchrun":
                raise RunnerError(f"{launcher} passes --local-rank to the script; use torchrun")
            return self._torchrun(launcher, arguments)
        if not all(part.isidentifier() for part in name.split(".")):
            raise RunnerError(
                f"python -m {name}: this is no name of a module, such as package.train"
            )
        return self._made(self._file_of("module", name), name, arguments)

    def _torchrun(self, program: str, words: Sequence[str]) -> TypedCommand:
        given, rest = TORCHRUN.read(program, words)
        if given.get("--nnodes", "1") not in ("1", "1:1"):
            raise RunnerError(f"{program} --nnodes {given['--nnodes']}: {MORE_NODES}")
        if not rest:
            raise RunnerError(f"{program}: a script is missing")
        ranks = self._num_ranks(program, given.get("--nproc-per-node", "1"))
        if ranks == 1:
            self._variables = ONE_RANK | self._variables
        else:  # as torchrun itself does
            self._variables.setdefault("OMP_NUM_THREADS", "1")
        starts = self._module if {"-m", "--module"} & given.keys() else self._script
        return replace(starts(rest[0], rest[1:]), ranks=ranks)

    def _num_ranks(self, program: str, text: str) -> int:
        cpus = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
        words = {"gpu": self._num_gpus, "cpu": cpus, "auto": self._num_gpus or cpus}
        if text in words and not words[text]:
            raise RunnerError(f"{program} --nproc-per-node {text}: this machine has no GPU")
        if text not in words and not text.isdecimal():
            raise RunnerError(
                f"{program} --nproc-per-node {text}: must be a number, auto, gpu or cpu"
                f"{nearest(text, words)}"
            )
        return max(1, words.get(text) or int(text))

    def _accelerate(self, words: Sequence[str]) -> TypedCommand:
        # Before Accelerate is imported, which takes seconds.
        for word in words:
            if word.endswith(".py"):
                _existing(word)
                break
        python = self._python or sys.executable
        answer = accelerate_launch(python, words, self._variables)
        if answer["refused"]:
            raise RunnerError(
                f"accelerate launch with {answer['refused'][0]} starts processes that Breakeven "
                "cannot measure; choose another configuration by --config_file, or torchrun"
            )
        typed = self._variables
        self._variables = {
            name: text for name, text in answer["variables"].items() if name not in typed
        } | typed
        program = answer["program"]
        command = (
            self._module(program[1], program[2:])
            if program[0] == "-m"
            else self._script(program[0], program[1:])
        )
        return replace(command, ranks=answer["ranks"])

    def _command(self, program: str, arguments: Sequence[str]) -> TypedCommand:
        """What the command of an installed package, or an executable Python file, runs."""
        file, name = Path(self._path_of(program)), Path(program).name
        self._python = self._python_of_command(program)
        answer = self._answer("command", name, self._python)
        if not answer["function"]:
            return self._script(str(file), arguments)
        self._python = answer["python"]
        return self._made(_python_file(answer, name), f"{name}={answer['function']}", arguments)

    def _made(self, file: Path, module: str, arguments: Sequence[str]) -> TypedCommand:
        if path := self._variables.get("PYTHONPATH"):
            entries = [str(Path(entry).absolute()) for entry in path.split(os.pathsep)]
            self._variables["PYTHONPATH"] = os.pathsep.join(entries)
        return TypedCommand(
            file=file,
            module=module,
            arguments=tuple(arguments),
            python=self._python,
            variables=self._variables,
        )

    def _file_of(self, kind: str, name: str) -> Path:
        return _python_file(self._answer(kind, name, self._python or sys.executable), name)

    def _answer(self, kind: str, name: str, python: str) -> dict[str, Any]:
        """The answer of a Python that has torch."""
        answer = located(python, kind, name, self._variables)
        if not answer["torch"]:
            raise RunnerError(
                f"{answer['python']} has no torch: activate the environment that has it, or write "
                f"the path of its Python, such as {sys.executable}"
            )
        return answer

    def _path_of(self, program: str) -> str:
        """The path of a program. Raises `RunnerError` with the nearest name."""
        path = shutil.which(program, path=os.pathsep.join(self._folders))
        if path is None:
            names = {entry.name for folder in self._folders for entry in _entries(Path(folder))}
            files = {entry.name for entry in _entries(Path.cwd()) if entry.suffix == ".py"}
            raise RunnerError(
                f"there is no command {program}{nearest(program, sorted(names | files))}"
            )
        return os.path.abspath(path)

    def _python_of_command(self, program: str) -> str:
        """The Python that a command's first line names."""
        own = Path(sys.executable).parent
        if shutil.which(program, path=os.pathsep.join(self._folders)) is None:
            self._folders.append(str(own))  # Breakeven's environment need not be active.
        file = self._path_of(program)
        with open(file, "rb") as opened:
            start = opened.read(1024).decode(errors="replace")
        match = LONG_SHEBANG.match(start) or SHEBANG.match(start)
        if match is None or not PYTHON.fullmatch(Path(match[1]).name):
            raise RunnerError(
                f"{program} is {file}, which is no Python program: give the python command that it "
                "runs, breakeven run python train.py"
            )
        return self._path_of(match[1])


def _python_file(answer: Mapping[str, Any], name: str) -> Path:
    file = str(answer["file"])
    if not file.endswith(".py"):
        raise RunnerError(f"{name} is {file}, which is no Python file")
    return Path(file)


def _existing(path: str) -> Path:
    """The full path of a file. Raises `RunnerError` with the nearest name in its folder."""
    file = Path(path).expanduser().absolute()
    if os.path.isfile(file):  # Path.is_file raises for a name longer than names may be.
        return file.resolve()
    names = [entry.name for entry in _entries(file.parent)]
    raise RunnerError(f"there is no file {file}{nearest(file.name, names)}")


def _entries(folder: Path) -> Collection[Path]:
    try:
        return [*folder.iterdir()]
    except OSError:
        return []
