"""Team mode: who is let in, as what; without proxies, a provider and a browser."""

from pathlib import Path
from typing import Any

import pytest

from breakeven.runner.errors import SettingsUnusable
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.settings import HOST_VARIABLE, Team, read_settings
from breakeven.views.access import doors, permissions
from breakeven.views.access.doors import Doors, Person, Role, person_of_token, role_of
from tests.helpers.oidc.sign_in import claims, token, write_team
from tests.helpers.waiting import awaited

ADDRESS = "https://bench.example.org"


@pytest.fixture
def file(folder: DataDir, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of the settings of a dashboard that listens to a proxy."""
    monkeypatch.setenv(HOST_VARIABLE, str(folder.path / "dashboard.sock"))
    folder.path.mkdir(parents=True, exist_ok=True)
    return write_team(folder.path)


def team_of(file: Path) -> Team:
    return read_settings(file.parent).team


@pytest.mark.parametrize(
    ("said", "role"),
    [
        (claims("vic"), Role.VIEWER),
        (claims("VIC", email="Vic@Example.org"), Role.VIEWER),
        (claims("oda"), Role.OPERATOR),
        (claims("x", groups=["ml-ops"]), Role.OPERATOR),
        (claims("x", groups="ml-ops"), Role.OPERATOR),
        (claims("x"), None),
        (claims("x", groups=["ML-OPS", "ml-ops2", {"ml-ops": 1}, 7]), None),
        (claims("x", groups={"ml-ops": True}), None),
        # Whoever names an address as theirs that nobody verified is nobody.
        (claims("x", email="oda@example.org", email_verified=False), None),
        (claims("x", email="oda@example.org", email_verified="true"), None),
        (claims("x", email=["oda@example.org"]), None),
        # The provider's name for somebody is not their address.
        (claims("x", name="oda@example.org", preferred_username="oda@example.org"), None),
    ],
)
def test_what_somebody_may_do_follows_from_what_the_provider_verified(
    file: Path, said: dict[str, Any], role: Role | None
) -> None:
    assert role_of(said, team_of(file)) is role


KELVIN, DOTLESS, LONG_S = "\u212a", "\u0131", "\u017f"
FULLWIDTH = str.maketrans({chr(code): chr(code + 0xFEE0) for code in range(0x21, 0x7F)})
MARK = "mark.iris@example.org"
LOOKALIKES = (
    MARK.replace("k", KELVIN), MARK.upper().replace("K", KELVIN), MARK.replace("i", DOTLESS),
    MARK.replace("s", LONG_S), MARK.translate(FULLWIDTH), MARK.replace("@", "\uff20"),
    MARK.replace("i", "\u0130"), MARK.replace("a", "\u0430"), f" {MARK}", f"{MARK}\0",
    MARK.replace("@", "+a@"),
)  # fmt: skip


@pytest.fixture
def with_mark(file: Path) -> Team:
    """A team whose operators are an address and a subject."""
    file.write_text(file.read_text().replace('"Oda@example.org"', f'"{MARK.title()}", "a1B2c3"'))
    return team_of(file)


@pytest.mark.parametrize("name", LOOKALIKES, ids=ascii)
@pytest.mark.parametrize("field", ["sub", "email"])
def test_nobody_passes_for_a_member_by_a_name_that_looks_like_theirs(
    with_mark: Team, field: str, name: str
) -> None:
    for member in ({"email": MARK}, {"email": MARK.upper()}, {"sub": "a1B2c3", "email": None}):
        assert role_of(claims("x") | member, with_mark) is Role.OPERATOR
    said = {"email": "x@example.org", **claims("x"), field: name}
    assert role_of(said, with_mark) is None
    person = person_of_token(token(said), with_mark)
    assert person is not None and person.name.isascii() and person.name.lower() != MARK


@pytest.mark.parametrize(
    "said",
    [
        *({"sub": subject} for subject in (MARK, MARK.title(), "A1B2C3", "a1b2c3", "a1B2c3 ")),
        *({"sub": subject} for subject in (["a1B2c3"], {"a1B2c3": 1}, True, 7, None, "")),
        {"email": "a1B2c3"},
        *({"email": MARK, "email_verified": word} for word in (False, "true", 1, ["x"], None)),
        *({"email": email} for email in ([MARK], {MARK: MARK}, True, 7)),
    ],
    ids=repr,
)
def test_what_is_no_verified_address_and_no_exact_subject_is_no_member(
    with_mark: Team, said: dict[str, Any]
) -> None:
    assert role_of(claims("x") | said, with_mark) is None
    person = person_of_token(token(claims("x") | said), with_mark)
    named = {"x@example.org"} if person and "email" not in said else set()
    assert person is None or person.name in {f"subject {person.subject}", *named}


def test_an_address_that_a_provider_calls_unverified_counts_in_no_case(file: Path) -> None:
    trusting = team_of(write_team(file.parent, more="trust_emails = true"))
    silent = {name: value for name, value in claims("oda").items() if name != "email_verified"}
    assert role_of(silent, trusting) is Role.OPERATOR
    for word in (False, "true", "false", 0, 1, []):
        said = silent | {"email_verified": word}
        assert role_of(said, trusting) is None
        person = person_of_token(token(said), trusting)
        assert person is not None and person.name == "subject oda"


def test_groups_may_stand_deep_and_who_is_blocked_is_nobody_whatever_else_they_are(file: Path):
    deep = team_of(write_team(file.parent, more='claim = "realm_access.roles"'))
    assert role_of(claims("x", realm_access={"roles": ["ml-ops"]}), deep) is Role.OPERATOR
    assert role_of(claims("x", realm_access="ml-ops", groups=["ml-ops"]), deep) is None
    blocking = team_of(write_team(file.parent, more='blocked = ["Oda@example.org", "bad"]'))
    assert role_of(claims("oda", groups=["ml-ops"]), blocking) is None
    assert role_of(claims("oda", groups=["ml-ops"], email_verified=False), blocking) is None
    assert role_of(claims("bad", groups=["ml-ops"]), blocking) is None
    assert role_of(claims("vic"), blocking) is Role.VIEWER


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("[team]", '[team]\nadmins = ["a"]', "team.admins = .* is not a field"),
        ('["ml-ops"]', '["*"]', "operators are named one by one"),
        ('["ml-ops"]', '"ml-ops"', "team.operators.groups = 'ml-ops': must be a list of text"),
        ("[team]", '[team]\ntrust_emails = "yes"', "must be true or false"),
        ("[team.viewers]", "[team.viewers", "cannot be read"),
    ],
)
def test_roles_that_cannot_be_meant_are_refused(file: Path, before: str, after: str, problem: str):
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))
    with pytest.raises(SettingsUnusable, match=problem):
        read_settings(file.parent)


@pytest.mark.parametrize(
    "said",
    [
        "", "a.b", "..", "a.!!!.c", "é.é.é", token([]), token("vic"), token(7), token({}),
        token(claims("vic") | {"sub": ""}), token(claims("vic") | {"sub": ["vic"]}),
        token(claims("vic"))[:-20],
    ],
)  # fmt: skip
def test_what_is_no_token_of_somebody_is_nobody(file: Path, said: str) -> None:
    vic = Person(subject="vic", name="vic@example.org", role=Role.VIEWER)
    assert person_of_token(token(claims("vic")), team_of(file)) == vic
    assert person_of_token(said, team_of(file)) is None


Answer = tuple[int, str]


def asked(path: str, who: Any = None, *, kind: str = "http", **more: str) -> Answer:
    """Status and body of the answer; 0 where the dashboard behind the doors is reached."""
    told: list[Any] = []

    async def behind(scope: Any, receive: Any, send: Any) -> None:
        told.append({"status": 0})

    async def send(message: Any) -> None:
        told.append(message)

    said = {"host": "localhost", **more}
    if who is not None:
        said["authorization"] = f"Bearer {token(who)}"
    method = said.pop("method", "GET")
    headers = [(name.encode(), value.encode()) for name, value in said.items()]
    scope = {"type": kind, "path": path, "query_string": b"", "headers": headers}
    scope |= {"method": method} if kind == "http" else {}
    awaited(Doors(behind, permissions.may_act_by)(scope, None, send))
    if told[0].get("type") == "websocket.close":
        return told[0]["code"], ""
    return told[0]["status"], b"".join(one.get("body", b"") for one in told).decode()


EVERYTHING = (
    "/", "/launch", "/compare", "/system", "/_stcore/host-config", "/_stcore/metrics",
    "/_stcore/script-health-check", "/_stcore/agent/openapi.json", "/_stcore/upload_file/a/b",
    "/_stcore/bidi-components/x", "/component/x/y.js", "/media/abc.png", "/static/index.html",
    "/app/static/x", "/report/20261121", "//metrics", "//healthz", "/healthz/",
    "/healthz/../launch", "/_stcore/health/x", "",
)  # fmt: skip


@pytest.mark.usefixtures("file")
def test_a_stranger_gets_nothing() -> None:
    for path in EVERYTHING:
        for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
            assert asked(path, method=method)[0] == 401, (path, method)
    for path in ("/_stcore/stream", "/", "/launch"):
        assert asked(path, kind="websocket", origin="https://localhost")[0] == 1008
    for path in doors.WITHOUT_PERSON:
        assert asked(path)[0] == 0


def test_a_token_counts_from_the_proxys_socket_alone_and_once(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vic, oda = (f"Bearer {token(claims(who))}" for who in ("vic", "oda"))
    assert doors.person_of({"authorization": oda}) is not None
    assert asked("/launch", authorization=f"{vic}, {oda}")[0] == 401
    monkeypatch.setenv(HOST_VARIABLE, "0.0.0.0")
    assert doors.person_of({"authorization": oda}) is None


@pytest.mark.usefixtures("file")
def test_viewers_pass_without_files_operators_with_and_others_are_told_so() -> None:
    viewer, operator, nobody = map(claims, ("vic", "oda", "x<b>"))
    upload = "/_stcore/upload_file/session/file"
    assert asked("/launch", viewer)[0] == asked("/launch", operator)[0] == 0
    for method in ("PUT", "DELETE", "POST"):
        assert asked(upload, viewer, method=method)[0] == 403
        assert asked(upload, operator, method=method)[0] == 0
    status, body = asked("/launch", nobody)
    assert status == 403 and "x<b>@example.org may not look" in body
    assert asked("/_stcore/stream", nobody, kind="websocket", origin="https://localhost")[0] == 1008
    assert asked("/_stcore/stream", viewer, kind="websocket", origin="https://localhost")[0] == 0


@pytest.mark.usefixtures("file")
def test_pages_of_the_very_address_alone_speak_to_us() -> None:
    """Browsers send cookies of a name to all of its ports."""
    for origin in ("http://localhost", "https://localhost:8443", "null", "", "https://["):
        assert asked("/_stcore/stream", claims("vic"), kind="websocket", origin=origin)[0] == 1008
    same = {"host": "bench.example.org:8443", "origin": "https://Bench.example.org:8443"}
    assert doors.may_come_from(same["origin"], same["host"])


def test_an_open_page_is_cut_off_once_its_role_is_another_or_it_is_old(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = file.read_text()

    def heard(change: Any) -> list[str]:
        got: list[str] = []
        sent: list[str] = []

        async def behind(scope: Any, receive: Any, send: Any) -> None:
            got.append((await receive())["type"])
            change()
            got.append((await receive())["type"])
            await send({"type": "websocket.send", "bytes": b"too late"})

        async def receive() -> Any:
            return {"type": "websocket.receive", "bytes": None}

        async def send(message: Any) -> None:
            sent.append(message["type"])

        bearer = f"Bearer {token(claims())}".encode()
        headers = [(b"host", b"localhost"), (b"authorization", bearer)]
        scope = {"type": "websocket", "path": "/_stcore/stream", "headers": headers}
        awaited(Doors(behind, permissions.may_act_by)(scope, receive, send))
        return [*got, *sent]

    went_on = ["websocket.receive", "websocket.receive", "websocket.send"]
    cut = ["websocket.receive", "websocket.disconnect", "websocket.close"]
    assert heard(lambda: None) == went_on
    assert heard(lambda: file.write_text(text.replace("vic@", "nobody@"))) == cut
    file.write_text(text)
    assert heard(lambda: monkeypatch.setattr(doors, "PAGE_SECONDS", -1.0)) == cut


def test_a_role_that_is_taken_away_is_gone_at_once_and_a_broken_file_lets_nobody_in(file: Path):
    text = file.read_text()
    assert asked("/launch", claims("vic"))[0] == 0
    file.write_text(text.replace("vic@example.org", "somebody.else@example.org"))
    assert asked("/launch", claims("vic"))[0] == 403
    file.write_text("nonsense")
    for path in ("/", "/healthz", "/_stcore/upload_file/a/b"):
        status, body = asked(path, claims("oda"))
        assert status == 503 and "in its log" in body
    file.write_text(text)
    file.chmod(0o620)
    assert asked("/launch", claims("oda"))[0] == 503
    file.unlink()
    assert asked("/launch", claims("oda"))[0] == 403


def test_a_socket_that_others_could_reach_or_replace_is_not_listened_on(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for mode, is_closed in ((0o711, False), (0o704, False), (0o730, False), (0o710, True),
                            (0o700, True)):  # fmt: skip
        folder = tmp_path / f"{mode:o}"
        folder.mkdir()
        folder.chmod(mode)
        monkeypatch.setenv(HOST_VARIABLE, str(folder / "dashboard.sock"))
        if is_closed:
            with doors.open_socket():
                assert (folder / "dashboard.sock").stat().st_mode & 0o007 == 0
            doors.open_socket().close()  # What a dashboard left behind is in nobody's way.
        else:
            with pytest.raises(SettingsUnusable, match="chmod 710"):
                doors.open_socket()
