"""Launch: choose what to compare, see its plan, start it."""

import streamlit as st

from breakeven.runner.errors import ProbeFailed, RunnerError
from breakeven.runner.machine.capabilities import Capabilities
from breakeven.runner.machine.cpus import cpu_allowance
from breakeven.runner.machine.quick_race import adjusted
from breakeven.runner.protocol.states import ExperimentState
from breakeven.runner.specs.candidates import search_spec
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.scenario_fields import Allowed
from breakeven.storage import queries
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.formats import format_passes, format_share
from breakeven.storage.remaining import earlier_costs, expected_seconds, never_compiled
from breakeven.views.access import permissions
from breakeven.views.access.errors import error_words
from breakeven.views.form import uploads
from breakeven.views.form.form import spec_form
from breakeven.views.form.presets import PRESETS, requested, show_again
from breakeven.views.library import suites as suite_form
from breakeven.views.parts import progress
from breakeven.views.parts.actions import check, errors_shown, launch, show_command
from breakeven.views.shared import words
from breakeven.views.shared.address import choice
from breakeven.views.shared.definition_links import linked
from breakeven.views.shared.inert import Markdown, code, inert
from breakeven.views.shared.resources import data_dir, get_store, look_at_machine
from breakeven.views.shared.words import listed

EXPERIMENT, SUITE = "experiment", "suite"
MOST_STEPS = 1_000_000_000
LARGER_BATCHES = (
    "Allow larger batches",
    "A larger batch is another training: the search compares times per sample; the training that "
    "confirms its answer also compares the last evaluations.",
)
TF32 = "Float32 matrix products then round their inputs to 10 bits of precision."
SUMS = "Attention without a fused kernel then adds up in half precision."
COARSER = {
    "float32": ("Allow TF32", TF32),
    "bf16": ("Allow half-precision sums in attention", SUMS),
    "fp16": ("Allow half-precision sums in attention", SUMS),
    None: ("Allow TF32 and half-precision sums in attention", f"{TF32} {SUMS}"),
}
"""What `precision` allows a search on CUDA, with an explanation, by the training's precision, which
is unknown of a script."""


def main() -> None:
    words.name_tab("Launch")
    store = get_store()
    if not permissions.may_act():
        st.info(permissions.viewing_only(), icon=":material/visibility:")
        return
    if ask_kind() == SUITE:
        suite_form.show_form()
        return
    launch_experiment(store)


def launch_experiment(store: Store) -> None:
    """The form of one experiment, once the hardware is known."""
    probe = look_at_machine(data_dir())
    if not probe.done():
        wait_for_probe()
        return
    try:
        machine = probe.result()
    except ProbeFailed as error:
        st.error(
            f"**The check of torch on this machine failed.** {error_words(error)}",
            icon=":material/error:",
        )
        show_look_again()
        return
    again = requested(store)
    if again is None:
        key = ask_preset()
        start = adjusted(PRESETS[key].spec, machine)
    else:
        show_again(again)
        key, start = again.key, again.spec
    show_missing_compiler(machine)
    if permissions.files_are_limited():
        uploads.ask_upload(again.key if again else "")
    form, plan_place = st.container(), st.container()
    actions = st.container(horizontal=True, vertical_alignment="bottom", key="actions")
    try:
        with form:
            blamed = again.blamed if again else None
            spec = spec_form(key, start, machine, check, blamed, actions.container(width=360))
    except RunnerError as error:
        spec = None
        plan_place.error(f"This cannot run here. {error_words(error)}", icon=":material/error:")
    if spec is None:
        actions.button("Launch", type="primary", icon=":material/rocket_launch:", disabled=True)
        return
    with plan_place:
        show_plan(store, spec, machine)
        if spec.workload.is_own_program:  # Its command is what people would type.
            show_command(spec)
        show_busy(store)
    with actions:
        clicked = st.button("Launch", type="primary", icon=":material/rocket_launch:", key="launch")
        offer_search(spec, machine)
        if not spec.workload.is_own_program:
            with st.popover("Command", icon=":material/terminal:", type="tertiary"):
                st.caption("The command that starts the same experiment:")
                show_command(spec)
    if clicked:
        with errors_shown():
            launch(spec, machine)


def offer_search(spec: ExperimentSpec, machine: Capabilities) -> None:
    """Offers to search for the fastest way to do this training, if candidates can take turns."""
    if not spec.kind.trains_fully:
        return
    with st.popover("Find the fastest", icon=":material/manage_search:"):
        st.markdown(
            "The search tries ways to compile this training and to run its optimizer. It ends "
            "slow ways early, combines settings that save time, and trains the best ways once "
            "more from the beginning, to confirm them."
        )
        steps = st.number_input(
            "Steps that you plan to train",
            1,
            MOST_STEPS,
            spec.plan.steps or spec.num_steps or spec.tune.steps,
            key="search-steps",
        )
        minutes = st.number_input(
            "Minutes for the search at most", 1, 600, 30, key="search-minutes"
        )
        allow: list[Allowed] = []
        if spec.device.startswith("cuda") and spec.precision in COARSER:
            title, help = COARSER[spec.precision]
            allow += ["precision"] if st.toggle(title, help=help, key="search-precision") else []
        if spec.workload.is_specified and len(spec.devices) == 1:
            title, help = LARGER_BATCHES
            allow += ["batch"] if st.toggle(title, help=help, key="search-batch") else []
        if st.button("Search", type="primary", key="search"):
            with errors_shown():
                launch(
                    search_spec(spec, steps=steps, max_seconds=60.0 * minutes, allow=allow), machine
                )


def ask_kind() -> str:
    """Asks whether to launch one experiment or a suite of models."""
    titles = {EXPERIMENT: "One experiment", SUITE: "A suite of models"}
    return choice("What to launch", "start", list(titles), format_func=titles.__getitem__)


def ask_preset() -> str:
    """Asks for the preset to start from; returns its key."""
    titles = {preset.title: key for key, preset in PRESETS.items()}
    chosen = st.segmented_control(
        "Start from",
        list(titles),
        default=next(iter(titles)),
        required=True,
        key="preset",
        bind="query-params",
    )
    key = titles[chosen or next(iter(titles))]
    st.caption(PRESETS[key].text)
    return key


@st.fragment(run_every=0.5)
def wait_for_probe() -> None:
    """Shows that the probe runs. A thread waits for it, so other pages stay usable."""
    if look_at_machine(data_dir()).done():
        st.rerun()
    st.status(
        "Asking torch for the devices, backends and optimizers of this machine. This happens "
        "once and takes about 10 seconds.",
        state="running",
    )


def show_look_again() -> None:
    if st.button(
        "Look again",
        key="look_again",
        icon=":material/refresh:",
        type="tertiary",
        help="After a change of hardware, drivers or compilers.",
    ):
        permissions.require_acting()
        look_at_machine(data_dir(), again=True)
        st.rerun()


def show_missing_compiler(machine: Capabilities) -> None:
    if machine.cpp_compiler is None:
        st.warning(
            "**No C++ compiler found.** `inductor` needs one on the CPU. Install it (Debian and "
            "Ubuntu: `apt install g++`, Fedora: `dnf install gcc-c++`, macOS: "
            "`xcode-select --install`), then look again.",
            icon=":material/build:",
        )
        show_look_again()


def show_plan(store: Store, spec: ExperimentSpec, machine: Capabilities) -> None:
    """Shows what a click on Launch starts."""
    labels = ", ".join(code(arm.label) for arm in spec.arms)
    device = next(entry.name for entry in machine.devices if entry.id == spec.device)
    order = "taking turns" if spec.schedule == "turns" else "one after another"
    at_most, about = ("at most ", "At most about") if spec.kind.ends_by_width else ("", "About")
    earlier = earlier_costs(store, spec, device)
    expected = expected_seconds(spec, earlier)
    subject = inert(spec.workload.noun)
    if expected is None:
        unknown = listed(list(map(code, never_compiled(spec, earlier)))) if earlier else ""
        what = f"{unknown} with this {subject}" if unknown else f"this {subject}"
        time = f"The first run of {what} on this machine will show how long it takes."
    else:
        took = words.duration(expected)
        expectation = linked("expected_seconds", f"{about} **{took}**")
        other = earlier[0].spec.script.arguments != spec.script.arguments
        but = ", though with other arguments," if other else ""
        time = (
            f"{expectation}, estimated from “{inert(earlier[0].name)}” with the same "
            f"{subject}{but} on this machine."
        )
    count = words.plural(spec.num_steps, "step") if spec.num_steps else "all steps of the script"
    steps = f"{at_most}{linked('num_steps', f'**{count}**')} each"
    if spec.is_until_decided:
        decided = linked("planned_seconds", f"**{inert(spec.kind.length_words(spec))}**")
        most = words.duration(spec.plan.max_seconds) if spec.plan.max_seconds else "2 to 15 minutes"
        steps = f"{decided}, at most {most} of steps and compiling, with {steps}"
    further = len(spec.further_controls)
    more = (
        " If it is unclear whether a backend learns the same, up to "
        f"{words.plural(further, 'more control')} run afterwards, one by one."
    )
    st.markdown(
        f"**What will run:** {words.plural(len(spec.arms), 'process')} ({labels}) on "
        f"{inert(spec.place)} ({inert(device)}), {order}, {steps}: "
        f"{_length(spec)}. {time}{more if further else ''}"
    )


def show_busy(store: Store) -> None:
    """Warns if others use this machine; does not count our own runs, which take turns."""
    sentences = progress.before_launch(cpu_allowance(), progress.load_average())
    if (
        sentences
        and not (queries.list_experiments(store)["state"] == ExperimentState.RUNNING).any()
    ):
        st.caption(f":material/memory: {sentences}")


def _length(spec: ExperimentSpec) -> Markdown:
    """`4 epochs of 45 batches of 32`, adapted to accumulation and a number of steps."""
    training = spec.training
    if not spec.workload.is_specified:
        return code(spec.subject)
    if spec.kind.cycles_batches:
        return _length_of_speed(spec)
    what = f"batches of {training.batch_size:,}"
    if training.gradient_accumulation > 1:
        what = f"steps of {training.gradient_accumulation:,} x {training.batch_size:,} samples"
    if training.max_steps is None:
        epochs = linked("epoch", words.plural(training.epochs, "epoch"))
        return f"{epochs} of {spec.steps_per_epoch:,} {what}"
    num_epochs = format_passes(spec.num_steps / spec.steps_per_epoch)
    epochs = inert(f"{num_epochs} epoch{'' if num_epochs == '1' else 's'}")
    return f"{linked('epoch', epochs)} of {spec.steps_per_epoch:,} {what}"


def _length_of_speed(spec: ExperimentSpec) -> Markdown:
    speed = spec.speed
    what = "forward passes" if spec.is_inference else "steps"
    return (
        f"{speed.warm_up_blocks:,} warm-up turns, then {speed.min_rounds:,} to "
        f"{speed.max_rounds:,} {linked('round', 'rounds')} of {spec.block_steps:,} {what} on the "
        f"same {words.plural(speed.batches, 'batch')}. It ends by itself once every speedup is "
        f"known to within {format_share(speed.target_width)}"
    )


main()
