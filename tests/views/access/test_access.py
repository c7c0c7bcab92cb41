"""Who can reach the dashboard, and what these people may do."""

import ast
import base64
import json
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from streamlit import config
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.testing.v1 import AppTest

from breakeven import serve
from breakeven.runner import secret_link
from breakeven.runner.checks import allowed_code
from breakeven.runner.checks.allowed_code import CODE_VARIABLE
from breakeven.runner.errors import InvalidSpec
from breakeven.runner.experiments.queue import experiments
from breakeven.runner.processes import ProcessIdentity
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.settings import FILE_NAME, HOST_VARIABLE, PORT_VARIABLE
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec
from breakeven.views.access import permissions, request_checks
from breakeven.views.form import uploads
from breakeven.views.parts import actions
from breakeven.views.upkeep.serving import FOR_VIEWERS
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec, record_experiment
from tests.helpers.machine import MACHINE, keep
from tests.helpers.pages import opened, text
from tests.helpers.serving import served
from tests.helpers.waiting import PATIENCE_SECONDS, awaited
from tests.views.access.socket_client import Page


@pytest.fixture(autouse=True)
def plain_settings(folder: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(HOST_VARIABLE, raising=False)


def say(folder: DataDir, **serving: object) -> None:
    """Writes the section `serving` of the settings."""
    folder.path.mkdir(parents=True, exist_ok=True)
    lines = [f"{name} = {json.dumps(value)}" for name, value in serving.items()]
    (folder.path / FILE_NAME).write_text("\n".join(["[serving]", *lines]))


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A dashboard that listens on all addresses."""
    before = config.get_option("server.address")
    config.set_option("server.address", "0.0.0.0")
    yield monkeypatch
    config.set_option("server.address", before)


def ask(url: str, host: str | None, path: str = "/", **how: Any) -> str:
    """The status of the answer to a request whose `Host` is `host`."""
    return answered(url, host, path, **how).split(" ")[1]


def answered(url, host, path, *, origin="", method="GET", websocket=False, more="") -> str:
    """The beginning of the answer."""
    lines = [f"{method} {path} HTTP/1.1", *([] if host is None else [f"Host: {host}"])]
    lines += [f"Origin: {origin}"] if origin else []
    lines += [more] if more else []
    if websocket:
        key = base64.b64encode(b"0123456789abcdef").decode()
        lines += [
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key}",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Protocol: streamlit",
        ]
    else:
        lines += ["Connection: close", "Content-Length: 0"]
    at = urlsplit(url)
    with socket.create_connection((at.hostname, at.port), timeout=PATIENCE_SECONDS) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        answer = b""
        while not websocket and (part := connection.recv(4000)):
            answer += part
        return (answer or connection.recv(4000)).decode("latin-1")


STREAM = "/_stcore/stream"
PATHS = (
    "/",
    "/launch",
    "/_stcore/health",
    "/_stcore/host-config",
    "/static/index.html",
    "/_stcore/agent/openapi.json",
)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A dashboard as `make run` starts it."""
    with served(DataDir(tmp_path_factory.mktemp("local"))) as (url, _server):
        yield url


def test_by_default_only_this_machine_is_listened_to(local: str) -> None:
    port = urlsplit(local).port
    others = {address_info[4][0] for address_info in socket.getaddrinfo(socket.gethostname(), port)}
    for address in others - {"127.0.0.1", "127.0.1.1", "::1"}:
        with pytest.raises(OSError):
            socket.create_connection((address, port), timeout=2)
    with pytest.raises(OSError):
        socket.create_connection(("::1", port), timeout=2)


def test_a_name_that_is_not_ours_is_refused_for_pages_files_and_websocket(local: str) -> None:
    port = urlsplit(local).port
    for host in ("localhost", f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"):
        assert ask(local, host) == "200"
        assert ask(local, host, STREAM, websocket=True, origin=f"http://{host}") == "101"
    for host in (
        f"evil.example:{port}",
        "evil.example",
        "localhost.evil.example",
        "10.1.2.3",
        "evil.example#localhost",
        "localhost@evil.example",
        "a b",
        "",
    ):
        # A rebound name: browsers also send it as origin, so both agree.
        assert ask(local, host, STREAM, websocket=True, origin=f"http://{host}") in ("403", "400")
        for path in PATHS:
            assert ask(local, host, path) in ("403", "400"), (host, path)
        assert ask(local, host, "/_stcore/agent/interact", method="POST") in ("403", "400")
    assert ask(local, None) == "400"
    twice = "Host: localhost"
    assert ask(local, "evil.example", more=twice) in ("400", "403")


def test_a_page_of_somebody_else_may_not_speak_to_us(local: str) -> None:
    for origin in ("http://evil.example", "null", "http://localhost:1", "https://localhost.evil"):
        assert ask(local, "localhost", STREAM, websocket=True, origin=origin) == "403"
        assert ask(local, "localhost", "/_stcore/host-config", origin=origin) == "403"


SITES = "Sec-Fetch-Site: {}\r\nSec-Fetch-Mode: {}\r\nSec-Fetch-Dest: {}"


def test_a_page_of_somebody_else_has_nothing_made_as_a_picture_or_a_frame(local: str) -> None:
    """Such a page sees whether the address exists and how long it took, and sends no telling
    `Origin`."""
    for path in (*PATHS, "/report/20261121-093015-123456-7f3a", "/healthz", "/media/a.png"):
        for site in ("cross-site", "same-site"):  # The latter is another port of this machine.
            for mode, destination in (
                ("no-cors", "image"),
                ("no-cors", "script"),
                ("navigate", "iframe"),
                ("cors", "empty"),
            ):
                more = SITES.format(site, mode, destination)
                assert ask(local, "localhost", path, more=more) == "403", (path, more)
    for site, mode, destination in (
        ("same-origin", "no-cors", "image"),
        ("none", "navigate", "document"),
        ("cross-site", "navigate", "document"),
    ):
        assert ask(local, "localhost", more=SITES.format(site, mode, destination)) == "200"
    head = answered(local, "localhost", "/").lower()
    for name in ("opener", "resource"):
        assert f"cross-origin-{name}-policy: same-origin" in head


def test_where_others_are_served_the_operators_names_numbers_and_the_machines_own_are_ours(
    others: pytest.MonkeyPatch, folder: DataDir
) -> None:
    say(folder, hostnames=["bench.example.org", "Other.Example."])
    ours = (
        "bench.example.org",
        "BENCH.example.org:8501",
        "other.example",
        "10.1.2.3:8501",
        "[2001:db8::1]:8501",
        socket.gethostname(),
        "localhost",
    )
    assert all(map(request_checks.is_ours, ours))
    assert not request_checks.is_ours("evil.example") and not request_checks.is_ours(
        "x.bench.example.org"
    )
    assert request_checks.may_come_from("https://bench.example.org", "127.0.0.1:8501")
    for origin in (
        "https://evil.example",
        "https://bench.example.org:8443",
        "null",
        "",
        "http://[",
        "https://bench.example.org@evil.example",
        "https://x.bench.example.org",
    ):
        assert not request_checks.may_come_from(origin, "bench.example.org"), origin


def test_a_named_host_or_a_proxy_means_that_others_are_served(folder: DataDir) -> None:
    assert not request_checks.serves_others(["Host", "Cookie"])
    assert request_checks.serves_others(["Host", "X-Forwarded-For"])
    for name, others in (("localhost", False), ("bench.example.org", True)):
        say(folder, hostnames=[name])
        assert request_checks.serves_others() == others
    for via, other in (("another account of this machine", True), ("1.1 proxy", False)):
        assert request_checks.comes_from_other_account({"via": via}) == other


def test_no_browser_is_told_to_ask_anybody_else(local: str) -> None:
    head = answered(local, "localhost", "/").lower()
    assert "content-security-policy: default-src 'self'" in head
    assert "http:" not in head.partition("content-security-policy")[2].partition("\r\n")[0]


@pytest.mark.heavy
def test_a_dashboard_for_others_takes_no_uploads_and_tells_no_traceback_without_the_secret_link(
    data_dir: DataDir,
) -> None:
    say(data_dir)
    upload = "/_stcore/upload_file/session/file"
    with served(data_dir, environment={HOST_VARIABLE: "0.0.0.0"}) as (url, _server):
        for cookies in ({}, cookie_of(data_dir)):
            more = f"Cookie: {'; '.join(f'{name}={value}' for name, value in cookies.items())}"
            answer = answered(url, "localhost", upload, method="PUT", more=more)
            assert ("for viewing only" in answer) == (not cookies)
            assert ask(url, "evil.example", STREAM, websocket=True, more=more) == "403"
            alerts, traces = provoked(url, cookies)
            assert (FOR_VIEWERS in alerts, any("dashboard.py" in code for code in traces)) == (
                not cookies,
                bool(cookies),
            )


def cookie_of(folder: DataDir) -> dict[str, str]:
    token = secret_link.ensure(folder)
    return {secret_link.cookie_name(token): token}


def provoked(url: str, cookies: dict[str, str]) -> tuple[list[str], list[str]]:
    """The alerts and tracebacks that a page shows after a forged message: a selector was
    pressed."""
    with Page(url, cookies) as page:
        kinds = {element.WhichOneof("type"): element for element in page.ask("experiment")}
        shown = page.ask("experiment", pressed=kinds["selectbox"].selectbox.id)
        assert not any(element.WhichOneof("type") == "exception" for element in shown)
        return [element.alert.body for element in shown], [
            element.code.code_text for element in shown
        ]


def record(folder: DataDir) -> None:
    """An active run, so that there is something to stop."""
    keep(folder, MACHINE)
    me = ProcessIdentity.from_pid(os.getpid())
    Recording(folder.runs, "inductor", experiment_spec()).claim(me).start()


def buttons(app: AppTest) -> list[str]:
    return [button.label for button in app.button]


def test_others_see_everything_and_are_offered_nothing_that_changes_it(
    folder: DataDir, others: pytest.MonkeyPatch
) -> None:
    record(folder)
    assert "Stop it" not in buttons(opened("experiment", experiment=EXPERIMENT_ID))
    launch = opened("launch")
    assert "Viewing only." in text(launch) and "breakeven token" in text(launch)
    assert buttons(launch) == ["Search"] and not launch.text_input and not launch.selectbox
    have_secret(others, folder)
    assert "Stop it" in buttons(opened("experiment", experiment=EXPERIMENT_ID))
    assert "Launch" in buttons(opened("launch"))


def have_secret(monkeypatch: pytest.MonkeyPatch, folder: DataDir, **headers: str) -> None:
    """The reader's browser has the cookie of the secret link."""
    cookie = "; ".join(f"{name}={value}" for name, value in cookie_of(folder).items())
    real = type(permissions.st.context)
    monkeypatch.setattr(real, "headers", {"cookie": cookie, **headers})


def test_who_may_only_look_is_told_of_nothing_else_and_why(
    folder: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_experiment(folder.runs)
    everything = "to open it. Tick rows to compare, run again, label, archive or delete them."
    assert everything in text(opened("experiments"))
    monkeypatch.setattr(permissions, "may_act_by", lambda headers: False)
    assert "to open it. Tick rows to compare them." in text(opened("experiments"))
    assert "is served to others" in text(opened("launch"))
    monkeypatch.setattr(request_checks, "comes_from_other_account", lambda headers: True)
    assert "another account of this machine" in text(opened("launch"))


def test_on_this_machine_alone_everything_is_offered_and_any_path_may_be_used(
    folder: DataDir, tmp_path: Path
) -> None:
    permissions.check_files(with_data(str(tmp_path / "a.csv")))
    record(folder)
    assert "Stop it" in buttons(opened("experiment", experiment=EXPERIMENT_ID))
    assert "Launch" in buttons(opened("launch"))


def test_what_is_not_allowed_is_not_done_even_if_it_was_asked_for(
    folder: DataDir, others: pytest.MonkeyPatch
) -> None:
    keep(folder, MACHINE)
    with pytest.raises(permissions.NotAllowed, match="breakeven token"):
        actions.launch(experiment_spec(), MACHINE)
    with pytest.raises(permissions.NotAllowed):
        uploads.keep("data.csv", b"text,label\n")
    assert not list(experiments(folder))
    assert not permissions.uploads().exists()


CHANGING = {
    "submit",
    "cancel",
    "resume",
    "probe",
    "request_cancel",
    "write_bytes",
    "write_text",
    "unlink",
    "rmtree",
    "mkdir",
    "import_rows",
    "import_file",
    "import_any",
}
HARMLESS = {
    ("resources.py", "open_store"),  # makes the data folder, when the dashboard starts
    ("resources.py", "look_at_machine"),  # asks torch once for the machine's devices
    ("serving.py", "problems_of_ingest"),  # ingests new rows of journals, as every page does
    ("health.py", "wrong"),  # reads disk and processes, in its own thread
    ("__main__.py", "main"),  # a command of a person at this machine
    ("pictures.py", "draw"),  # a picture, in its own thread
}


def functions_of_pages() -> Iterator[tuple[str, list[ast.FunctionDef]]]:
    for file in sorted((PROJECT_ROOT / "views").rglob("*.py")):
        yield (
            file.name,
            [
                function
                for function in ast.walk(ast.parse(file.read_text()))
                if isinstance(function, ast.FunctionDef)
            ],
        )


def test_every_action_of_a_page_asks_first_whether_it_is_allowed() -> None:
    for file, functions in functions_of_pages():
        asking = [
            function
            for function in functions
            if names_called(function) & {"require_acting", "keep"}
        ]
        for function in functions:
            changing = names_called(function) & CHANGING
            if changing and (file, function.name) not in HARMLESS:
                said = f"{file}, {function.name}: {changing}, require_acting() missing"
                assert function in asking or is_called_only_by(asking, function, functions), said


def is_called_only_by(
    asking: list[ast.FunctionDef], function: ast.FunctionDef, functions: list[ast.FunctionDef]
) -> bool:
    """Whether only these functions of its file name a private function, and all of them call it."""
    name = function.name
    naming = [
        other
        for other in functions
        if any(getattr(node, "id", "") == name for node in ast.walk(other))
    ]
    calls = all(other in asking and name in names_called(other) for other in naming)
    return name.startswith("_") and bool(naming) and calls


def names_called(function: ast.FunctionDef) -> set[str]:
    called = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    return {
        getattr(called_function, "attr", getattr(called_function, "id", ""))
        for called_function in called
    }


def test_no_page_opens_a_path_that_was_typed_before_it_is_known_to_be_allowed() -> None:
    for file, functions in functions_of_pages():
        for function in functions:
            names = names_called(function)
            reads = names & {"read_head", "locate", "check_data"} or "checks.check" in {
                ast.unparse(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)
            }
            allowed = names & {"check_path", "check_files"}
            assert allowed or not reads, f"{file}, {function.name}: check_path() missing"


@pytest.mark.heavy
def test_the_form_shows_no_row_of_a_file_that_others_may_not_use(
    folder: DataDir, tmp_path: Path, others: pytest.MonkeyPatch
) -> None:
    keep(folder, MACHINE)
    secret = tmp_path / "secret.csv"
    secret.write_text("text,label\nthe password is swordfish,1\nanother,2\n" * 40)
    have_secret(others, folder)
    query = {"preset": "Your own data", "own.data": str(secret)}
    app = opened("launch", **query)
    shown = text(app) + "".join(frame.value.to_csv() for frame in app.dataframe)
    assert "swordfish" not in shown and "must lie in a folder that is open" in shown
    assert app.button[-1].disabled
    say(folder, files=[str(tmp_path)])
    app = opened("launch", **query)
    assert "swordfish" in "".join(frame.value.to_csv() for frame in app.dataframe)


def with_data(source: str) -> ExperimentSpec:
    return experiment_spec(data=DataSpec(source=source))


def test_others_use_only_files_in_folders_that_were_named(
    folder: DataDir, tmp_path: Path, others: pytest.MonkeyPatch
) -> None:
    opened_folder, secret = tmp_path / "open", tmp_path / "secret"
    for made in (opened_folder, secret):
        made.mkdir()
        (made / "a.csv").write_text("text,label\n")
    (opened_folder / "link.csv").symlink_to(secret / "a.csv")
    (opened_folder / "away").symlink_to(secret)
    say(folder, files=[str(opened_folder)])
    kept = permissions.uploads() / "b.csv"
    for source in (opened_folder / "a.csv", kept, "builtin:reviews", "owner/name"):
        permissions.check_files(with_data(str(source)))
    for source in (
        secret / "a.csv",
        opened_folder / "link.csv",
        opened_folder / "away" / "a.csv",
        opened_folder / ".." / "secret" / "a.csv",
        "/etc/passwd",
        "~/a.csv",
        "./a.csv",
        "a.csv",
        "http://evil.example/a.csv",
        "file:///etc/a.csv",
        "storage",
        "examples",
        "text",
        "examples/scripts",
        "hf://datasets/owner/name/a.csv",
        f"{opened_folder}/\0.csv",
        "",
    ):
        with pytest.raises(InvalidSpec, match="must"):
            permissions.check_files(with_data(str(source)))
    for model in (str(secret), "views", "../other", "examples/scripts"):
        with pytest.raises(InvalidSpec, match="must lie in a folder"):
            permissions.check_files(experiment_spec(model=ModelSpec(source=model)))
    permissions.check_files(experiment_spec(model=ModelSpec(source="bert-base-uncased")))
    # Another check decides which scripts may run, for everybody.
    script = ModelSpec(source=f"script:{secret}/train.py")
    spec = experiment_spec(task="script", model=script, data=DataSpec(source="script"))
    permissions.check_files(spec)


def test_an_uploaded_file_is_kept_under_a_safe_name_once_if_it_is_data_and_not_too_large(
    folder: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "../../etc/cron.csv",
        "..\\x\\a.csv",
        ".hidden.csv",
        "a b\n\0.csv",
        "=HYPERLINK(1).csv",
        "é" * 300 + ".csv",
        ".csv",
        "-rf.CSV",
    ):
        path = uploads.keep(name, b"text,label\ngood,1\n")
        assert path.parent == permissions.uploads()
        assert path.name.isascii() and path.suffix == ".csv" and len(path.name) < 110
        assert path.name[0].isalnum()
        assert path.read_bytes() == b"text,label\ngood,1\n"
    assert uploads.keep("a.csv", b"1") == uploads.keep("a.csv", b"1")
    assert uploads.keep("a.csv", b"1") != uploads.keep("a.csv", b"2")
    assert not [entry for entry in permissions.uploads().iterdir() if entry.name.startswith(".")]
    for name in ("a.py", "a.csv.exe", "csv", "a.pkl"):
        with pytest.raises(uploads.UploadRefused, match="must end in one of"):
            uploads.keep(name, b"1")
    for limit, said in (("MAX_TOTAL_BYTES", "together"), ("MAX_MEBIBYTES", "must not be larger")):
        monkeypatch.setattr(uploads, limit, 0)
        with pytest.raises(uploads.UploadRefused, match=said):
            uploads.keep("a.csv", b"12345")


@pytest.fixture
def uploaded_scripts_run(folder: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `serve.py` sets it on a machine that serves nobody else."""
    monkeypatch.setenv(CODE_VARIABLE, "/home/me/code")
    monkeypatch.setattr(sys, "platform", "linux")
    permissions.let_scripts_run()


@pytest.mark.usefixtures("uploaded_scripts_run")
def test_a_script_is_uploaded_into_a_folder_of_its_own_and_may_run_from_there(folder: DataDir):
    for name, stem in (
        ("../../train.py", "train"),
        ("my train (2).PY", "my_train_2"),
        (".py", "script"),
    ):
        path = uploads.keep_script(name, b"import breakeven\n")
        assert path.parent.parent == permissions.scripts() and path.name == f"{stem}.py"
        assert [file.name for file in path.parent.iterdir()] == [path.name]
        assert allowed_code.locate(str(path))[0] == path.resolve()
    assert uploads.keep_script("a.py", b"1") != uploads.keep_script("a.py", b"2")
    with pytest.raises(uploads.UploadRefused, match=r"must end in \.py"):
        uploads.keep_script("a.csv", b"1")
    with pytest.raises(uploads.UploadRefused, match="not be larger than 1 MiB"):
        uploads.keep_script("a.py", b"#" * 2**20 + b"#")


@pytest.mark.usefixtures("uploaded_scripts_run")
@pytest.mark.parametrize("name", ["X-Forwarded-For", request_checks.OTHER_ACCOUNT[0].decode()])
def test_nobody_who_is_served_from_elsewhere_or_has_another_account_uploads_a_script(
    folder: DataDir, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    have_secret(monkeypatch, folder, **{name.lower(): request_checks.OTHER_ACCOUNT[1].decode()})
    assert permissions.may_act() and not permissions.scripts_may_run()
    with pytest.raises(permissions.NotAllowed, match="only on the machine itself"):
        uploads.keep_script("a.py", b"1")
    assert not permissions.scripts().exists()


def test_where_others_are_served_or_accounts_are_not_told_apart_uploaded_scripts_do_not_run(
    folder: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(CODE_VARIABLE, raising=False)
    monkeypatch.setattr(sys, "platform", "darwin")
    permissions.let_scripts_run()
    monkeypatch.setattr(sys, "platform", "linux")
    say(folder, hostnames=["bench.example.org"])
    permissions.let_scripts_run()
    assert CODE_VARIABLE not in os.environ and not permissions.scripts_may_run()
    say(folder)
    with pytest.raises(permissions.NotAllowed):
        uploads.keep_script("a.py", b"1")
    permissions.let_scripts_run()
    assert permissions.scripts_may_run()


@pytest.mark.parametrize(
    ("name", "value", "said"), [(PORT_VARIABLE, "99999", "must be at most 65,535")]
)
def test_what_says_whom_to_serve_and_is_not_understood_keeps_the_dashboard_from_beginning(
    folder: DataDir, monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    def begin(*_: object) -> None:
        raise AssertionError("the dashboard begins")

    monkeypatch.setattr(serve, "open_log", begin)
    monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit, match=said):
        serve.main()


@pytest.mark.parametrize(
    ("path", "query", "status", "says"),
    [
        ("/component/plotly_js/plotly.min.js", b"version=7.1.0", 200, request_checks.FOREVER),
        ("/component/plotly_js/plotly.min.js", b"", 200, {}),
        ("/component/plotly_js/plotly.min.js", b"version=7.1.0", 404, {}),
        ("/media/file.csv", b"version=7.1.0", 200, {}),
    ],
)
def test_files_of_components_last_by_their_version_and_nothing_else_does(
    path: str, query: bytes, status: int, says: dict[bytes, bytes]
) -> None:
    sent: list[Any] = []

    async def behind(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"cache-control", b"no-cache"), (b"content-type", b"text/javascript")]
        await send({"type": "http.response.start", "status": status, "headers": headers})

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "path": path,
        "query_string": query,
        "headers": [(b"host", b"localhost")],
    }
    awaited(request_checks.RequestChecks(behind, permissions.may_act_by)(scope, None, send))
    headers = dict(sent[0]["headers"])
    usual = {b"cache-control": b"no-cache", b"content-type": b"text/javascript"}
    assert len(sent[0]["headers"]) == len(headers)
    assert headers == usual | request_checks.HEADERS | says


def test_no_page_has_streamlit_write_files_here(local: str) -> None:
    """Streamlit refuses this in headless mode, in which we start it."""
    first, message, answer = BackMsg(), BackMsg(), ForwardMsg()
    first.rerun_script.SetInParent()
    with Page(local, {}) as page:

        def said(message: BackMsg, kind: str) -> None:
            page.connection.send(message.SerializeToString())
            while answer.WhichOneof("type") != kind:
                answer.ParseFromString(page.connection.recv(timeout=PATIENCE_SECONDS))  # type: ignore[arg-type]

        said(first, "new_session")
        session = answer.new_session.initialize.session_id
        message.backend_operation_request.session_id = session
        message.backend_operation_request.install_skills.SetInParent()
        said(message, "backend_operation_response")
    assert answer.backend_operation_response.error_reason == "refused:headless"
