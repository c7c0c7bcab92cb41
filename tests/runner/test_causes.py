"""What an exception says went wrong, of messages as torch 2.13 and Triton 3 write them."""

import pytest

from breakeven.runner.errors import short_cause

ADVICE = (
    "\n\nSet TORCHDYNAMO_VERBOSE=1 for the internal stack trace (please do this especially if "
    "you're reporting a bug to PyTorch). For even more developer context, set "
    'TORCH_LOGS="+dynamo"\n'
)
CPP = """CppCompileError: C++ compile error

Command:
g++ /tmp/cache/am/camj.main.cpp -O3 -include /tmp/header.h -o /tmp/cache/am/camj.main.so

Output:
{output}
"""
TRITON = """at 4:11:def kernel(in_ptr0, out_ptr0):
    x = tl.load(in_ptr0)

    y = tl.no_such_function(x)
           ^
{reason}"""
OLDER_TRITON = TRITON.replace("at 4:11:", "at 4:11:\n")
IN_SUBPROCESS = """SubprocException: An exception occurred in a subprocess:

Name=triton_poi_fused_add_0
Traceback (most recent call last):
  File "/torch/_inductor/compile_worker/subproc_pool.py", line 337, in do_job
    result = job()
RuntimeError: the worker's own

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/triton/compiler/code_generator.py", line 1190, in visit
    raise
triton.compiler.errors.CompilationError: at 4:11:def kernel(in_ptr0, out_ptr0):
    y = tl.no_such_function(x)
           ^
AttributeError("module 'triton.language' has no attribute 'no_such_function'")
"""
NO_RULE = "backend='thunder' raised:\nNotImplementedError: no rule for aten.sin\nsee the list"


@pytest.mark.parametrize(
    ("error", "message", "cause"),
    [
        ("ValueError", "batch 20 has no label", "ValueError: batch 20 has no label"),
        ("ValueError", "two\nlines", "ValueError: two"),
        ("ValueError", "Batch: no label 11", "ValueError: Batch: no label 11"),
        ("BackendCompilerFailed", "", "compiling failed: BackendCompilerFailed"),
        (
            "BackendCompilerFailed",
            "backend='b' raised:",
            "compiling failed: BackendCompilerFailed: backend='b' raised:",
        ),
        (
            "RuntimeError",
            "these are missing:\n    layer.weight\n    layer.bias",
            "RuntimeError: these are missing: layer.weight",
        ),
        ("AssertionError", "", "AssertionError"),
        ("WorkloadError", "the script ended\nwithout a step", "the script ended without a step"),
        (
            "BackendCompilerFailed",
            NO_RULE + ADVICE,
            "compiling failed: NotImplementedError: no rule for aten.sin",
        ),
        (
            "BackendCompilerFailed",
            "backend='b' raised:\nAssertionError: " + ADVICE,
            "compiling failed: AssertionError",
        ),
        (
            "InductorError",
            "InvalidCxxCompiler: No working C++ compiler: ('/bin/false',)" + ADVICE,
            "compiling failed: InvalidCxxCompiler: No working C++ compiler: ('/bin/false',)",
        ),
        (
            "InductorError",
            CPP.format(
                output="a.cpp:3:9: warning: unused\na.cpp:7:1: error: 'x' was not declared\n1 error"
            )
            + ADVICE,
            "compiling failed: CppCompileError: a.cpp:7:1: error: 'x' was not declared",
        ),
        (
            "InductorError",
            CPP.format(
                output="/usr/bin/ld: a.o: undefined reference to `omp'\n"
                "collect2: error: ld returned 1 exit status"
            ),
            "compiling failed: CppCompileError: /usr/bin/ld: a.o: undefined reference to `omp'",
        ),
        ("InductorError", CPP.format(output="Killed"), "compiling failed: CppCompileError: Killed"),
        (
            "InductorError",
            CPP.format(output=""),
            "compiling failed: CppCompileError: C++ compile error",
        ),
        (
            "BackendCompilerFailed",
            "backend='inductor' raised:\n" + CPP.format(output="Killed"),
            "compiling failed: CppCompileError: Killed",
        ),
        (
            "CompilationError",
            TRITON.format(reason="AttributeError('no_such_function')"),
            "CompilationError: AttributeError('no_such_function')",
        ),
        (
            "CompilationError",
            OLDER_TRITON.format(reason="AttributeError('no_such_function')"),
            "CompilationError: AttributeError('no_such_function')",
        ),
        (
            "InductorError",
            "LoweringException: NotImplementedError: no kernel for complex\n"
            "  target: aten.mm.default\n  args[0]: TensorBox(x)" + ADVICE,
            "compiling failed: LoweringException: NotImplementedError: no kernel for complex",
        ),
        (
            "CompilationError",
            TRITON.format(reason=""),
            "CompilationError: y = tl.no_such_function(x)",
        ),
        (
            "InductorError",
            IN_SUBPROCESS + ADVICE,
            "compiling failed: CompilationError: AttributeError(\"module 'triton.language' has no "
            "attribute 'no_such_function'\")",
        ),
        (
            "InductorError",
            "OutOfResources: out of resource: shared memory, Required: 3, limit: 2",
            "compiling failed: OutOfResources: out of resource: shared memory, Required: 3, "
            "limit: 2",
        ),
        (
            "InductorError",
            "something without a class",
            "compiling failed: InductorError: something without a class",
        ),
    ],
)
def test_one_line_names_the_class_of_what_failed_and_why(
    error: str, message: str, cause: str
) -> None:
    assert short_cause(error, message) == cause


@pytest.mark.parametrize("message", ["InductorError: " * 5000, "\n" * 5000, "at 1:1:" * 5000])
def test_a_message_from_elsewhere_may_be_anything(message: str) -> None:
    assert len(short_cause("InductorError", message)) <= 500
