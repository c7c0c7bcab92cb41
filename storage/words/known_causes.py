"""Known causes of failed runs, and remedies to try: one table of rules.

The first matching rule names the cause. No rule blames a compiler for an error that the baseline
also has.
"""

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from breakeven.runner.arguments.options import FIELDS, command_line
from breakeven.runner.doctor.machine_checks import INSTALL_COMPILER
from breakeven.runner.errors import OF_COMPILERS, TRACEBACK, InvalidSpec
from breakeven.runner.ports_and_locks import held_by_another
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.ladder import with_ladder
from breakeven.runner.specs.values import parse_settings
from breakeven.storage import queries
from breakeven.storage.index.store import Store
from breakeven.storage.profile.findings import Remedy, arm_of
from breakeven.storage.profile.guards import change_in, guard_in
from breakeven.storage.queries import RunRecord
from breakeven.storage.result_caches import memo, revision
from breakeven.storage.words.compiler_advice import about_break, about_guard
from breakeven.storage.words.findings import remedy_option

COMPILING = (
    r"convert_frame\.py|remove_dynamo_frames|compile_fx\.py.* in (_?compile_fx|codegen_and_compile)"
)
"""Frames of a traceback that show a compiler at work."""
NAMED_LINE = re.compile(r'^ +File "([^"]+)", line (\d+), in ', re.MULTILINE)
WORKPLACE = re.compile(r"^.*/\d{8}-\d{6}-\d{6}-\w{4}\.[^/]+/work/")
"""The copy of a script's folder in a run folder."""
WHOLE = re.compile(r"^(\S+) calls torch\.compile with .*\bfullgraph=True")
"""A note of a script's run."""
FRAME = re.compile(r'^  File "([^"]+)", line \d+, in .+\n    (.*)', re.MULTILINE)
"""File and code of a frame; those in messages are indented further."""
LIBRARY = re.compile(
    r"(site|dist)-packages|lib/python\d|/torch/(_|nn/|utils/)|breakeven/runner/|^<"
)
"""Files that are no code of a person: of packages, of Breakeven, and generated ones."""
FAKE_TENSORS = "Dynamo failed to run FX node with fake tensors"
"""Dynamo's message for an operator that refuses its inputs; eager code has another message."""
NO_KERNEL = "NotImplementedError: Could not run '"
"""Torch's message for an operator without a kernel for the device."""
NUMPY = re.compile(r"\b(np|numpy)\b")
RAISING = re.compile(r"(^|[:;] ?)(raise|assert) ")
RERAISING = ("/torch/_utils.py", "raise exception")
"""The frame that raises the error of a process that loads data; its own traceback follows."""
NOT_FINITE = "the loss is not finite"
SHORTEST_LINE = 8
"""Shortest first line of a message that identifies an error, in characters."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The facts about a failed run that rules use."""

    spec: ExperimentSpec
    arm: Arm
    text: str | None
    """The run's backend as written in the specification, if it is there."""
    state: RunState
    message: str
    """Class and message of its error, or the reason of its end."""
    traceback: str = ""
    baseline: "Failure | None" = None
    """The failure of the environment's baseline, if it failed."""
    guard: str | None = None
    """Torch's reason for the last compilation of a function that was compiled before."""
    asks_for_whole: tuple[str, ...] = ()
    """Places where the script itself calls `torch.compile` with `fullgraph=True`."""
    has_baseline: bool = True
    """Whether this baseline finished or made a step, so that the failure can be compared."""

    @property
    def is_compiling(self) -> bool:
        """Whether a compiler failed; some tracebacks lack the compiler's frames."""
        return self.message.startswith(OF_COMPILERS) or bool(re.search(COMPILING, self.traceback))

    @property
    def is_of_device(self) -> bool:
        """Whether a lack of memory is one of the GPU, as its message says."""
        return bool(re.search(r"CUDA|HIP|CUBLAS|XPU|MPS|OutOfMemoryError", self.message))

    @property
    def lacks_what_others_hold(self) -> bool:
        """Whether other processes hold most of the GPU's memory, as torch's message says."""
        held = HELD.search(self.message)
        if held is None:
            return False
        amounts, units = held.groups()[::2], held.groups()[1::2]
        total, free, own = (
            float(amount) / UNITS_PER_GIB[unit] for amount, unit in zip(amounts, units, strict=True)
        )
        return total - free - own > OTHERS_SHARE * total

    @property
    def reason(self) -> str:
        """The message without its class."""
        return self.message.partition(": ")[2]

    @property
    def users_line(self) -> str | None:
        """`file:line` of the user's code at which it happened: the innermost that torch's message
        names, or else that of the traceback; None if there is none. Files of a script are relative
        to its folder."""
        _, _, named = self.message.partition("from user code:")
        places = NAMED_LINE.findall(named) or NAMED_LINE.findall(self.traceback)
        own = [place for place in places if not LIBRARY.search(place[0])]
        if not own:
            return None
        file, line = own[-1]
        return f"{WORKPLACE.sub('', file)}:{line}"

    @property
    def needs_what_is_held(self) -> bool:
        """Whether the error is one of a port or lock that only one process can hold."""
        text = f"{self.message}\n{self.traceback}"
        return self.spec.workload.is_own_program and held_by_another(text) is not None

    @property
    def has_micro_batches(self) -> bool:
        """Whether a step may have several backward passes; what a script does is not known."""
        is_known = self.spec.workload.is_specified
        return not is_known or self.spec.training.gradient_accumulation > 1

    @property
    def is_own(self) -> bool:
        """Whether the person's code raised the error, and no other error led to it: whatever its
        words are, no compiler raised it, and no device."""
        ends = [FRAME.findall(part)[-1:] for part in self.traceback.split(TRACEBACK)[1:]]
        backend = (self.arm.path_of_backend or "").rpartition(":")[0]
        is_wrapped = self.message.startswith(OF_COMPILERS) and "_dynamo" in self.traceback
        if is_wrapped or not all(ends):
            return False
        places = [
            (file, code)
            for ((file, code),) in ends
            if not (file.endswith(RERAISING[0]) and code == RERAISING[1])
        ]
        return bool(places) and all(
            RAISING.search(code) and not LIBRARY.search(file) and file != backend
            for file, code in places
        )

    @property
    def ends_at_numpy(self) -> bool:
        """Whether the innermost frame is a line of the person's code that calls numpy."""
        ends = FRAME.findall(self.traceback)[-1:]
        return any(NUMPY.search(code) and not LIBRARY.search(file) for file, code in ends)

    @property
    def is_shared(self) -> bool:
        """Whether a baseline without a compiler has the same error; compilers wrap errors in their
        own."""
        if self.baseline is None or self.baseline.arm.backend is not None:
            return False
        if FAKE_TENSORS in self.message:
            return True
        if RunState.OUT_OF_MEMORY in (self.state, self.baseline.state):
            return self.state is self.baseline.state
        line = self.baseline.message.partition(": ")[2] or self.baseline.message
        line = line.strip().partition("\n")[0]
        has_line = len(line) >= SHORTEST_LINE and line in self.message
        return has_line or self.message == self.baseline.message


Make = Callable[[Failure], Remedy | None]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A pattern of failures with its cause, advice and remedies."""

    kind: str
    cause: str
    where: Callable[["Failure"], str] = lambda failure: ""
    """A sentence about the place in the user's code; empty if unknown."""
    words: str = ""
    """A pattern of the error, `Class: message`, or of the reason of the run's end."""
    frames: str = ""
    """A pattern of the traceback, which shows the stage."""
    when: Callable[[Failure], bool] = lambda failure: True
    advice: str = ""
    advises: Callable[["Failure"], str] | None = None
    """Makes the advice from the failure; None for the fixed one."""
    remedies: tuple[Make, ...] = ()
    of_compiler: bool = True
    """Whether only a run with a compiler can have this cause, not the baseline."""
    of_own_code: bool = False
    """Whether an error that the person's code raised can have this cause."""
    compares: bool = False
    """Whether the cause rests on a baseline that trains."""

    def fits(self, failure: Failure) -> bool:
        if self.of_compiler and (failure.arm.backend is None or failure.is_shared):
            return False
        if failure.is_own and not self.of_own_code:
            return False
        if self.compares and not failure.has_baseline:
            return False
        seen = (re.search(self.words, failure.message), re.search(self.frames, failure.traceback))
        return all(seen) and self.when(failure)


@dataclass(frozen=True, kw_only=True)
class KnownCause:
    """The cause of one run's failure, and remedies that can be measured."""

    label: str
    kind: str
    words: str
    remedies: tuple[Remedy, ...]
    spec: ExperimentSpec

    def command(self, remedy: Remedy) -> str:
        """The command that runs the experiment with the remedy."""
        return command_line(changed(self.spec, remedy), " ")


def remedy_text(remedy: Remedy) -> str:
    """The arm, or the options that set the fields."""
    is_ladder = remedy.fields[0][0] == "backends"
    return remedy.backend or ("--ladder" if is_ladder else remedy_option(remedy))


def changed(spec: ExperimentSpec, remedy: Remedy) -> ExperimentSpec:
    """The specification with a remedy; raises `InvalidSpec` if the remedy does not fit."""
    values = asdict(spec.on_its_own)
    for path, value in remedy.fields:
        FIELDS[path].put_in(values, value)
    return ExperimentSpec.from_dict(values)


def _arm(failure: Failure, name: str | None = None, **settings: Any) -> Remedy | None:
    """A remedy that replaces settings of the failed backend; None removes a setting."""
    if failure.text is None:
        return None
    known, given = parse_settings(failure.text, "backends", dotted=True)
    texts = {
        key: str(value).lower() if isinstance(value, bool) else value
        for key, value in {**given, **settings}.items()
        if value is not None
    }
    text = ":".join(
        filter(None, [name or known, "+".join(f"{key}={value}" for key, value in texts.items())])
    )
    if text == failure.text:
        return None
    backends = (text if backend == failure.text else backend for backend in failure.spec.backends)
    return Remedy(fields=(("backends", tuple(dict.fromkeys(backends))),), backend=text)


def with_settings(**settings: Any) -> Make:
    return lambda failure: _arm(failure, **settings)


def with_fields(**fields: Any) -> Make:
    """A function that makes a remedy with these fields; `__` stands for the dot of a path."""
    paths = tuple((name.replace("__", "."), value) for name, value in fields.items())
    return lambda failure: Remedy(fields=paths)


def with_breaks(failure: Failure) -> Remedy | None:
    """Without the backend's `fullgraph=true`; or in spite of the script's own."""
    if failure.arm.fullgraph:
        return _arm(failure, fullgraph=None)
    return _arm(failure, fullgraph=False) if failure.spec.workload.decides_scope else None


def with_symbols(failure: Failure) -> Remedy | None:
    """Symbolic shapes, where a size or number changed."""
    kind, _ = change_in(failure.guard or "size mismatch")
    return _arm(failure, dynamic=True) if kind in ("size", "number", "unknown") else None


def with_eager(failure: Failure) -> Remedy | None:
    """The backend `eager`, which leaves gradients to torch's autograd."""
    if failure.arm.backend == "eager":
        return None
    inductors = {name: None for name in ("mode", *failure.arm.options)}
    return _arm(failure, "eager", **inductors)


def breaking_line(failure: Failure) -> str:
    """Where the graph breaks, and where the script asks for one graph."""
    line = failure.users_line
    asks = ", ".join(failure.asks_for_whole)
    here = f"It ends at {line}." if line else ""
    script = f"The script calls torch.compile with fullgraph=True at {asks}." if asks else ""
    return " ".join(filter(None, [here, script]))


def changing_value(failure: Failure) -> str:
    """What changed from call to call, as torch's error or the journal says."""
    if failure.guard is None:
        return ""
    return f"{about_guard(failure.guard)[0].capitalize()} changed ({guard_in(failure.guard)})."


def about_changing(failure: Failure) -> str:
    if failure.guard is None:
        return "Compiling on the run's page lists the guards that failed."
    return about_guard(failure.guard)[1]


def without_cuda_graphs(failure: Failure) -> Remedy | None:
    mode = failure.arm.mode
    name = "inductor" if failure.arm.backend == "cudagraphs" else None
    new_mode = "max-autotune-no-cudagraphs" if mode == "max-autotune" else None
    switch = None if failure.spec.settings == "plain" else False
    return _arm(failure, name, mode=new_mode, **{"triton.cudagraphs": switch})


def without_autotuning(failure: Failure) -> Remedy | None:
    mode = "reduce-overhead" if failure.arm.mode == "max-autotune" else None
    return _arm(failure, mode=mode, max_autotune=None)


def smaller_batch(failure: Failure) -> Remedy | None:
    """Half the batch size; in a training, twice as many micro-batches. A search tried a larger
    batch beside the experiment's own."""
    training = failure.spec.training
    if training.batch_size == 1 or failure.arm.batch_times > 1:
        return None
    fields: tuple[tuple[str, Any], ...] = (("training.batch_size", training.batch_size // 2),)
    if failure.spec.trains:
        fields += (("training.gradient_accumulation", 2 * training.gradient_accumulation),)
    return Remedy(fields=fields)


def lower_rate(failure: Failure) -> Remedy:
    return Remedy(fields=(("training.learning_rate", failure.spec.training.learning_rate / 10),))


def clipped(failure: Failure) -> Remedy | None:
    is_clipped = failure.spec.training.clip_norm is not None
    return None if is_clipped else Remedy(fields=(("training.clip_norm", 1.0),))


def whole_ladder(failure: Failure) -> Remedy | None:
    ladder = with_ladder(failure.spec.backends, failure.spec.device)
    if set(ladder) == set(failure.spec.backends):
        return None
    return Remedy(fields=(("backends", ladder),))


OVERWRITTEN = "accessing tensor output of CUDAGraphs that has been overwritten"
MEMORY = (
    r"(?i)^(?!(Value|Type|Key|Index|Attribute|Assertion|Import|NotImplemented)Error)[\s\S]*"
    r"(out of memory|MemoryError|allocate memory|not enough memory|CUBLAS_STATUS_ALLOC_FAILED)"
)
OF_EXCEPTION = rf"^{NOT_FINITE}$|^\w+: (?![\s\S]*(No space left on device|Disk quota exceeded))"
"""Of a loss or an exception; other ends, as of a power cut or a full disk, are no fault of code."""
OF_DYNAMO = r"^(Unsupported|UserError|TorchRuntimeError|\w*DataDependent\w*): "
AUTOTUNING = r"select_algorithm\.py|autotune_process\.py|benchmark_all_configs"
HELD = re.compile(
    r"total capacity of ([\d.]+) (\w+) of which ([\d.]+) (\w+) is free[\s\S]*"
    r"this process has ([\d.]+) (\w+) memory in use"
)
"""Memory of the GPU, its free part and the part of the failed process, in torch's message. A limit
(`set_per_process_memory_fraction`) leaves memory free."""
UNITS_PER_GIB = {"GiB": 1, "MiB": 2**10, "KiB": 2**20, "bytes": 2**30}
OTHERS_SHARE = 0.75
"""If other processes hold a larger part of the memory, the failed one lacks what they hold."""
FIT_LESS = "Use smaller batches or fewer runs at once, or a device with more memory."
RULES = (
    Rule(
        kind="gradients in CUDA graphs",
        words=OVERWRITTEN,
        frames="_engine_run_backward",
        when=lambda failure: failure.arm.captures_cuda_graphs and failure.has_micro_batches,
        cause="With several micro-batches per step, the gradients of the first one lie in the "
        "memory of its CUDA graph. The graph of the next micro-batch overwrites this memory before "
        "its own gradients are added.",
        advice="Call torch.compiler.cudagraph_mark_step_begin() once before the first micro-batch "
        "of each step, not before every model call. Or create the gradients as zeros before the "
        "first backward pass, and call zero_grad(set_to_none=False).",
        remedies=(without_cuda_graphs,),
    ),
    Rule(
        kind="CUDA graph overwritten",
        words=OVERWRITTEN,
        when=lambda failure: failure.arm.captures_cuda_graphs,
        cause="The code uses an output of a CUDA graph after the graph's next run, which "
        "overwrites this output.",
        advice="Call clone() on the output outside the compiled code, or call "
        "torch.compiler.cudagraph_mark_step_begin() before each step.",
        remedies=(without_cuda_graphs,),
    ),
    Rule(
        kind="sharded gradients beside CUDA graphs",
        words="data pointer on an invalid python storage",
        frames="_is_cuda_graph_recorded_tensor",
        when=lambda failure: failure.spec.parallel == "fsdp",
        cause="Dynamo asks whether the gradients lie in the memory of a CUDA graph before it "
        "compiles the optimizer. Under fsdp a gradient is a DTensor without memory of its own.",
        remedies=(without_cuda_graphs,),
    ),
    Rule(
        kind="memory held by others",
        words=MEMORY,
        of_compiler=False,
        when=lambda failure: failure.lacks_what_others_hold,
        cause="Other processes hold most of the device's memory: other runs of this experiment, or "
        "other programs.",
        advice="End the other programs, which nvidia-smi lists, or use fewer runs at once.",
        remedies=(with_fields(schedule="sequential"),),
    ),
    Rule(
        kind="out of memory while autotuning",
        words=MEMORY,
        frames=AUTOTUNING,
        cause="Memory ran out while kernels were timed: their inputs and outputs need memory in "
        "addition to the training's.",
        remedies=(without_autotuning, smaller_batch),
        advice=FIT_LESS,
    ),
    Rule(
        kind="out of memory while compiling",
        words=MEMORY,
        compares=True,
        when=lambda failure: failure.is_compiling,
        cause="Memory ran out while code was compiled. The baseline, which compiles nothing, had "
        "enough.",
        remedies=(with_settings(scope="blocks"), smaller_batch),
        advice=FIT_LESS,
    ),
    Rule(
        kind="out of memory with CUDA graphs",
        words=MEMORY,
        compares=True,
        when=lambda failure: failure.arm.captures_cuda_graphs and failure.is_of_device,
        cause="Memory ran out in the training. CUDA graphs keep memory that nothing else can use; "
        "the baseline, which has no CUDA graphs, had enough memory.",
        remedies=(without_cuda_graphs, smaller_batch),
        advice=FIT_LESS,
    ),
    Rule(
        kind="out of the machine's memory",
        words=MEMORY,
        of_compiler=False,
        when=lambda failure: failure.spec.device != "cpu" and not failure.is_of_device,
        cause="The machine's own memory ran out, not the device's.",
        advice="Use fewer runs at once, or a machine with more memory.",
        remedies=(with_fields(schedule="sequential"),),
    ),
    Rule(
        kind="out of memory",
        words=MEMORY,
        of_compiler=False,
        cause="The model, its gradients and activations of one batch do not fit into the memory.",
        remedies=(smaller_batch, with_fields(schedule="sequential")),
        advice=FIT_LESS,
    ),
    Rule(
        kind="killed",
        of_compiler=False,
        words=r"^ended by signal SIGKILL|^RuntimeError: .*is killed by signal: Killed",
        cause="A process was killed: by the system because the machine's memory ran out, or by "
        "hand.",
        advice="The system's log (dmesg) says whether it was the system.",
        remedies=(smaller_batch, with_fields(schedule="sequential")),
    ),
    Rule(
        kind="held by another run",
        of_compiler=False,
        when=lambda failure: failure.needs_what_is_held and failure.spec.takes_turns,
        cause="The script needs a port, file or lock that only one process can hold, and all runs "
        "of an experiment are alive at once.",
        advice="Run by run it works as alone.",
        remedies=(with_fields(schedule="sequential"),),
    ),
    Rule(
        kind="held by another program",
        of_compiler=False,
        when=lambda failure: failure.needs_what_is_held,
        cause="Another program holds a port, file or lock that the script needs: no other run was "
        "alive.",
        advice="End that program (ss -tlnp lists ports, lsof files), or change the script's port "
        "or path.",
    ),
    Rule(
        kind="double backward",
        words="aot_autograd does not currently support double backward",
        cause="The script differentiates a gradient, as for a gradient penalty or a second "
        "derivative. AOTAutograd, which all backends but eager contain, computes first derivatives "
        "alone.",
        where=lambda failure: f"It does so at {line}." if (line := failure.users_line) else "",
        advice="Use eager, or compute that part with the uncompiled model (model._orig_mod "
        "of what torch.compile returned), and all else with the compiled one.",
        remedies=(with_eager,),
    ),
    Rule(
        kind="recompile limit",
        words=r"^FailOnRecompileLimitHit\b|^Unsupported: [\s\S]*recompile.limit",
        cause="A value that changes from call to call (a shape, a number, an attribute) is "
        "constant in the compiled code, so Dynamo compiled the function again until its limit.",
        where=changing_value,
        advises=about_changing,
        remedies=(with_symbols, with_breaks),
    ),
    Rule(
        kind="data-dependent operation",
        words=OF_DYNAMO + r"(?i:[\s\S]*(data.dependent|dynamic shape operator))",
        cause="A branch of the code, or the shape of a tensor, depends on numbers that are not "
        "known before the graph runs, so the graph ends there.",
        where=breaking_line,
        advises=lambda failure: about_break(failure.reason),
        remedies=(with_breaks,),
    ),
    Rule(
        kind="graph break",
        words=r"^Unsupported: ",
        frames=r"_dynamo|^$",
        cause="Dynamo cannot capture a part of the code, and fullgraph=true makes that an error.",
        where=breaking_line,
        advises=lambda failure: about_break(failure.reason),
        remedies=(with_breaks,),
    ),
    Rule(
        kind="no C++ compiler",
        words=r"InvalidCxxCompiler|Compiler: \S+ is not found",
        when=lambda failure: failure.is_compiling,
        cause="Inductor generates C++ for the CPU, and this machine has no working C++ compiler.",
        # Pages show a cause as plain text.
        advice=f"Install one: {INSTALL_COMPILER.replace('`', '')}.",
    ),
    Rule(
        kind="no Triton",
        when=lambda failure: failure.is_compiling,
        words=r"TritonMissing|Cannot find a working triton|GPUTooOldForTriton|"
        r"cannot import name '\w+' from 'triton|No module named 'triton",
        cause="Inductor generates Triton for the GPU. Triton is missing here or too old, or the "
        "GPU is too old for Triton.",
        advice="Install the triton that this torch requires, or use a backend without Triton.",
        remedies=(lambda failure: _arm(failure, "aot_eager", mode=None),),
    ),
    Rule(
        kind="GPU not supported",
        of_compiler=False,
        words=r"^(RuntimeError|AcceleratorError): [\s\S]*(no kernel image is available|"
        r"is not compatible with the current PyTorch installation|"
        r"driver version is insufficient|driver on your system is too old)",
        when=lambda failure: failure.spec.device != "cpu",
        cause="This torch, this driver and this GPU do not fit together.",
        advice="Install a torch that is built for the GPU, or a newer driver; breakeven doctor "
        "says more.",
    ),
    Rule(
        kind="shared memory exceeded",
        words="out of resource: shared memory",
        when=lambda failure: failure.spec.device != "cpu",
        cause="A generated kernel needs more shared memory than a multiprocessor of this GPU has.",
        remedies=(without_autotuning, whole_ladder),
    ),
    Rule(
        kind="inference only",
        words="^WorkloadError: backend .* is for inference alone",
        cause="The backend's outputs have no gradients.",
        advice="Choose another backend, or time forward passes.",
        remedies=(with_fields(scenario="speed", speed__part="inference"),),
    ),
    Rule(
        kind="backend missing",
        words=r"^BackendCompilerFailed: .*raised:\s*(ImportError|ModuleNotFoundError)|"
        r"^InvalidBackend: |^WorkloadError: backend .* is not registered here",
        when=lambda failure: failure.arm.backend != "inductor",
        cause="The package of the backend is not installed here, or does not register the name.",
        advice="Install it into the environment in which the runs take place.",
    ),
    Rule(
        kind="hub unreachable",
        of_compiler=False,
        words=r"^(NotLoaded|WorkloadError): [\s\S]*"
        "(the hub could not be reached|HF_HUB_OFFLINE is set|hub does not offer it)",
        cause="A model or data set is given by its name on the hub, but neither the hub nor a copy "
        "on this machine has it.",
        advice="Load it once with a network connection, or give a local folder.",
    ),
    Rule(
        kind="loss not finite, as the baseline's",
        words=f"^{NOT_FINITE}$",
        of_compiler=False,
        when=lambda failure: failure.arm.backend is None or failure.is_shared,
        cause="The loss is not finite without a compiler either: the learning rate, the precision "
        "or the data are the cause, not a backend.",
        advice="On a run with a backend, Find the cause (breakeven investigate) names the layer "
        "where such numbers begin.",
        remedies=(lower_rate, clipped),
    ),
    Rule(
        kind="loss not finite",
        words=f"^{NOT_FINITE}$",
        compares=True,
        cause="The loss is not finite under this backend, but the baseline's loss is.",
        advice="The ladder names the first stage of the compiler with such a loss.",
        remedies=(whole_ladder,),
    ),
    Rule(
        kind="fault of the code",
        of_compiler=False,
        of_own_code=True,
        words=OF_EXCEPTION,
        when=lambda failure: failure.arm.backend is not None and failure.is_shared,
        cause="The baseline, which has no compiler, ends with the same error: the model, the data "
        "or the settings are the cause, not a backend.",
    ),
    Rule(
        kind="numpy in compiled code",
        compares=True,
        when=lambda failure: failure.baseline is None and failure.ends_at_numpy,
        cause="Dynamo turns numpy in compiled code into torch code, and where it gives up, numpy "
        "gets other objects than without a compiler: the baseline passes this line.",
        where=lambda failure: f"It failed at {line}." if (line := failure.users_line) else "",
        advice="Call numpy outside of the compiled code, or set "
        "torch._dynamo.config.trace_numpy = False before the first step.",
    ),
    Rule(
        kind="unknown operator",
        compares=True,
        words=r"LoweringException|MissingOperator|missing lowering|NotImplementedError",
        when=lambda failure: (
            failure.baseline is None
            and (failure.is_compiling or failure.message.startswith(NO_KERNEL))
        ),
        cause="The backend has no code for an operator or a data type of the model.",
        advice="The ladder names the stage of the compiler that fails.",
        remedies=(whole_ladder,),
    ),
    Rule(
        kind="unknown",
        compares=True,
        when=lambda failure: failure.baseline is None and failure.is_compiling,
        cause="The cause of this error is not known; the baseline does not have it.",
        advice="An investigation (breakeven investigate, or Find the cause) names the part of the "
        "compiler that is to blame.",
        remedies=(whole_ladder,),
    ),
)


def find_cause(label: str, failure: Failure) -> KnownCause | None:
    """The cause from the first matching rule; None if no rule matches."""
    rule = next((candidate for candidate in RULES if candidate.fits(failure)), None)
    if rule is None:
        return None
    remedies = tuple(dict.fromkeys(_possible(rule, failure)))
    advice = rule.advice if rule.advises is None else rule.advises(failure)
    words = " ".join(filter(None, [rule.cause, rule.where(failure), advice]))
    return KnownCause(
        label=label, kind=rule.kind, words=words, remedies=remedies, spec=failure.spec
    )


def _possible(rule: Rule, failure: Failure) -> Iterator[Remedy]:
    """Remedies that change the experiment and give a valid specification."""
    for make in rule.remedies:
        remedy = make(failure)
        if remedy is None:
            continue
        if not failure.spec.workload.can_change(remedy.fields[0][0]):
            continue
        try:
            is_other = changed(failure.spec, remedy) != failure.spec.on_its_own
        except InvalidSpec:
            continue
        if is_other:
            yield remedy


@memo(revision)
def known_causes(store: Store, experiment_id: str) -> tuple[KnownCause, ...]:
    """Causes of failed runs and of losses that are not finite, in the order of the arms."""
    runs = queries.run_states(store, experiment_id)
    not_finite = set(queries.wrong_losses(store, experiment_id)["run_id"])
    failures: dict[str, Failure] = {}
    for run in runs.to_dict("records"):
        if RunState(run["state"]).is_failed or run["run_id"] in not_finite:
            record = queries.run_record(store, run["run_id"])
            failed_run = _failure(record, run["run_id"] in not_finite)
            failures[run["label"]] = replace(failed_run, guard=_last_guard(store, record))
    if not failures:
        return ()
    baselines = _baselines(store, experiment_id, failures)
    known = []
    for label, failure in failures.items():
        baseline, has_baseline = baselines.get(failure.arm.environment, ("", False))
        if label != baseline:
            failure = replace(failure, baseline=failures.get(baseline), has_baseline=has_baseline)
        known.append(find_cause(label, failure))
    return tuple(cause for cause in known if cause is not None)


def _last_guard(store: Store, record: RunRecord) -> str | None:
    frames = queries.compile_metrics(store, record.experiment_id)
    reasons = frames.loc[frames["run_id"] == record.run_id, "recompile_reason"].dropna()
    return None if reasons.empty else str(reasons.iloc[-1])


def _baselines(
    store: Store, experiment_id: str, failures: Collection[str]
) -> dict[str | None, tuple[str, bool]]:
    """The baseline of each environment, of several the first with a failure: its label, and whether
    any finished or made a step."""
    runs = queries.list_runs(store, experiment_id)
    baselines: dict[str | None, tuple[str, bool]] = {}
    for run in runs[runs["role"] == "baseline"].to_dict("records"):
        environment = queries.run_record(store, run["run_id"]).arm.environment
        trains = run["steps_done"] > 0 or RunState(run["state"]) is RunState.FINISHED
        label, trained = baselines.get(environment, (run["label"], False))
        label = label if label in failures else run["label"]
        baselines[environment] = (label, trained or trains)
    return baselines


def _failure(record: RunRecord, is_not_finite: bool) -> Failure:
    spec, error, run = record.spec, record.error, record.arm.label
    repeated = next((label for label, runs in spec.repeats_by_label.items() if run in runs), run)
    message = record.reason or "" if error is None else f"{error.name}: {error.message}"
    failure = Failure(
        spec=spec,
        arm=record.arm,
        text=arm_of(spec, repeated)[1],
        state=record.state,
        message=message,
        traceback=error.traceback if error else "",
        asks_for_whole=tuple(
            place[1]
            for note in record.workload.get("notes") or ()
            if (place := WHOLE.match(str(note)))
        ),
    )
    # Many scripts raise an error of their own once the loss is not finite.
    if is_not_finite and (failure.is_own or not record.state.is_failed):
        return replace(failure, message=NOT_FINITE, traceback="")
    return failure
