"""Team mode: who is let in, as what, and for how long; without a provider and a browser."""

import asyncio
import hashlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from streamlit.web.server.starlette.starlette_server_config import USER_COOKIE_NAME

from breakeven.runner.folders.data_dir import DataDir
from breakeven.views.access import session, signin, team
from breakeven.views.access.session import SignedOut, person_of, seal_name
from breakeven.views.access.team import Role, Team, TeamUnusable, read_team
from tests.helpers.oidc.sign_in import (
    ADDRESS,
    ISSUER,
    SECRET,
    claims,
    cookies,
    header,
    pieces,
    write_team,
)
from tests.helpers.waiting import awaited


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = write_team(tmp_path / "team.toml")
    monkeypatch.setenv(team.TEAM_VARIABLE, str(file))
    monkeypatch.delenv(team.SECRET_VARIABLE, raising=False)
    return file


@pytest.fixture
def known(file: Path) -> Team:
    return read_team(file)


@pytest.fixture(autouse=True)
def nobody_signed_out(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(session, "signed_out", SignedOut())
    return


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
    known: Team, said: dict[str, Any], role: Role | None
) -> None:
    assert known.role_of(said) is role


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
    return read_team(file)


def test_members_are_verified_addresses_in_any_case_and_subjects_as_they_are_written(
    with_mark: Team,
) -> None:
    for email in (MARK, MARK.upper(), MARK.title()):
        assert with_mark.role_of(claims("x", email=email)) is Role.OPERATOR
    assert with_mark.role_of(claims("a1B2c3", email=None)) is Role.OPERATOR


@pytest.mark.parametrize("name", LOOKALIKES, ids=ascii)
@pytest.mark.parametrize("field", ["sub", "email"])
def test_nobody_passes_for_a_member_by_a_name_that_looks_like_theirs(
    with_mark: Team, field: str, name: str
) -> None:
    said = {"email": "x@example.org", **claims("x"), field: name}
    assert with_mark.role_of(said) is None
    person = person_of(cookies(with_mark, said))
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
    assert with_mark.role_of(claims("x") | said) is None
    person = person_of(cookies(with_mark, claims("x") | said))
    named = {"x@example.org"} if person and "email" not in said else set()
    assert person is None or person.name in {f"subject {person.subject}", *named}


def test_an_address_that_a_provider_calls_unverified_counts_in_no_case(file: Path) -> None:
    write_team(file, more="trust_emails = true")
    trusting = read_team(file)
    silent = {name: value for name, value in claims("oda").items() if name != "email_verified"}
    assert trusting.role_of(silent) is Role.OPERATOR
    for word in (False, "true", "false", 0, 1, []):
        said = silent | {"email_verified": word}
        assert trusting.role_of(said) is None
        person = person_of(cookies(trusting, said))
        assert person is not None and person.name == "subject oda"


def test_groups_may_stand_deep_in_what_a_provider_says(file: Path) -> None:
    write_team(file, more='claim = "realm_access.roles"')
    deep = read_team(file)
    assert deep.role_of(claims("x", realm_access={"roles": ["ml-ops"]})) is Role.OPERATOR
    assert deep.role_of(claims("x", realm_access="ml-ops", groups=["ml-ops"])) is None


def test_who_is_blocked_is_nobody_whatever_else_they_are(file: Path) -> None:
    write_team(file, more='blocked = ["Oda@example.org", "bad"]')
    blocking = read_team(file)
    assert blocking.role_of(claims("oda", groups=["ml-ops"])) is None
    assert blocking.role_of(claims("oda", groups=["ml-ops"], email_verified=False)) is None
    assert blocking.role_of(claims("bad", groups=["ml-ops"])) is None
    assert blocking.role_of(claims("vic")) is Role.VIEWER


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        (f'"{ADDRESS}"', '"http://bench.example.org"', "must begin with https://"),
        (f'"{ISSUER}"', '"http://login.example.org"', "must begin with https://"),
        (f'"{ADDRESS}"', f'"{ADDRESS}/below"', "must end with the name"),
        (f'"{ADDRESS}"', '"https://user@bench.example.org"', "must begin with https://"),
        (SECRET, "short", "16 characters or more"),
        ('scopes = "openid email groups"', "session_hours = 0", "session_hours = 0"),
        ('scopes = "openid email groups"', "session_hours = true", "session_hours = True"),
        ('scopes = "openid email groups"', 'admins = ["a"]', "'admins' is none of"),
        ('["ml-ops"]', '["*"]', "operators are named one by one"),
        ('["ml-ops"]', '"ml-ops"', "must be a list of texts"),
        ("[viewers]", "[viewers", "cannot be read"),
        ('client_id = "breakeven"', "client_id = 7", "client_id = 7 must be a text"),
    ],
)
def test_a_team_file_that_cannot_be_meant_is_refused(
    file: Path, before: str, after: str, problem: str
) -> None:
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))
    with pytest.raises(TeamUnusable, match=problem.replace("*", r"\*")):
        read_team(file)


def test_a_team_file_that_others_may_write_or_whose_secret_they_may_read_is_refused(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for mode in (0o620, 0o602, 0o640, 0o604):
        file.chmod(mode)
        with pytest.raises(TeamUnusable, match="chmod 600"):
            read_team(file)
    text = file.read_text()
    file.write_text(text.replace(f'client_secret = "{SECRET}"', ""))
    monkeypatch.setenv(team.SECRET_VARIABLE, SECRET)
    assert read_team(file).client_secret == SECRET
    assert SECRET not in repr(read_team(file))


def test_a_role_that_is_taken_away_is_gone_at_once_and_a_broken_file_lets_nobody_in(
    file: Path, known: Team
) -> None:
    whose = cookies(known, claims("vic"))
    now = person_of(whose)
    assert now is not None and now.role is Role.VIEWER and now.name == "vic@example.org"
    file.write_text(file.read_text().replace("vic@example.org", "somebody.else@example.org"))
    now = person_of(whose)
    assert now is not None and now.role is None
    file.write_text("nonsense")
    assert person_of(whose) is None and team.current() is None
    write_team(file)
    assert person_of(whose) is not None


@pytest.mark.parametrize(
    "change",
    [
        {"iat": int(time.time()) - 13 * 3600},
        {"iat": int(time.time()) + 3600},
        {"iat": "now"},
        {"iat": True},
        {"iss": "https://evil.example"},
        {"origin": "https://evil.example"},
        {"is_logged_in": False},
        {"is_logged_in": "yes"},
        {"sub": ""},
    ],
)
def test_a_session_is_over_when_it_is_old_of_another_provider_or_for_another_address(
    known: Team, change: dict[str, Any]
) -> None:
    assert person_of(cookies(known, claims("vic"))) is not None
    assert person_of(cookies(known, {**claims("vic"), **change})) is None


def test_nothing_but_what_we_signed_and_sealed_counts(known: Team) -> None:
    whose, others = cookies(known, claims("vic")), cookies(known, claims("oda"))
    seal = seal_name(known)
    assert seal.startswith("__Host-")
    assert person_of({}) is None
    assert person_of({**whose, seal: ""}) is None
    assert person_of({**whose, seal: others[seal]}) is None
    assert person_of({**whose, seal: "é" * 64}) is None
    assert person_of({USER_COOKIE_NAME: json.dumps(claims("oda")), seal: whose[seal]}) is None
    forged = pieces(claims("oda"), "another secret, which is long enough")
    assert person_of({**forged, seal: whose[seal]}) is None
    # A cookie of one name, signed by us, is none of another.
    assert person_of({**whose, USER_COOKIE_NAME: whose[USER_COOKIE_NAME][::-1]}) is None


def test_pieces_of_two_sign_ins_do_not_make_a_third(known: Team) -> None:
    """Streamlit signs each piece by itself: mixed, they would say what no provider said."""
    many = [hashlib.sha256(bytes([number])).hexdigest() for number in range(250)]
    one, two = (
        cookies(known, claims("vic", groups=groups, iat=int(time.time()) - age))
        for groups, age in ((many, 0), ([*reversed(many)], 60))
    )
    assert len(one) > 3 and one.keys() == two.keys()
    assert person_of(one) is not None and person_of(two) is not None
    last = max(one.keys() - {seal_name(known)})
    mixed = {**one, last: two[last]}
    assert person_of(mixed) is None
    assert person_of({**mixed, seal_name(known): two[seal_name(known)]}) is None


def test_a_copy_of_a_cookie_is_worth_nothing_after_the_sign_out_nor_after_a_restart(
    known: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = DataDir(tmp_path)
    session.signed_out.open(folder)
    whose, others = cookies(known, claims("vic")), cookies(known, claims("oda"))
    person = person_of(whose)
    assert person is not None
    session.signed_out.add(person)
    assert person_of(whose) is None and person_of(others) is not None
    again = SignedOut()
    again.open(folder)
    monkeypatch.setattr(session, "signed_out", again)
    assert person_of(whose) is None
    folder.signed_out_file.write_text("nonsense")
    SignedOut().open(folder)


Answer = tuple[int, dict[str, str], str]


def asked(path: str, *, whose: str = "", kind: str = "http", **more: str) -> Answer:
    """Status, headers and body of the answer; 0 where the dashboard behind the door is reached."""
    told: list[Any] = []

    async def behind(scope: Any, receive: Any, send: Any) -> None:
        told.append({"status": 0})
        if scope["path"] in signin.WATCHED:
            told.clear()
            await send({"type": "http.response.start", "status": 503, "headers": []})
            await send({"type": "http.response.body", "body": b"names and numbers"})

    async def send(message: Any) -> None:
        told.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    method, query = more.pop("method", "GET"), more.pop("query", "")
    headers = [(b"cookie", whose.encode())] if whose else []
    headers += [(name.replace("_", "-").encode(), value.encode()) for name, value in more.items()]
    scope = {"type": kind, "path": path, "query_string": query.encode(), "headers": headers}
    scope |= {"method": method} if kind == "http" else {}
    awaited(signin.SignIn(behind)(scope, receive, send))
    if told[0].get("type") == "websocket.close":
        return told[0]["code"], {}, ""
    body = b"".join(one.get("body", b"") for one in told)
    named = {name.decode(): value.decode() for name, value in told[0].get("headers", ())}
    return told[0]["status"], named, body.decode()


EVERYTHING = (
    "/", "/launch", "/compare", "/system", "/_stcore/host-config", "/_stcore/metrics",
    "/_stcore/script-health-check", "/_stcore/agent/openapi.json", "/_stcore/upload_file/a/b",
    "/_stcore/bidi-components/x", "/component/x/y.js", "/media/abc.png", "/static/index.html",
    "/app/static/x", "/report/20261121", "/metrics", "//healthz", "/healthz/",
    "/healthz/../metrics", "/sign-in/", "/SIGN-IN", "/auth/login/x",
    "/oauth2callback/../metrics", "/_stcore/health/x", "",
)  # fmt: skip


def test_a_stranger_gets_the_sign_in_and_nothing_else(file: Path) -> None:
    for path in EVERYTHING:
        for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
            status, headers, body = asked(path, method=method)
            assert status == 401, (path, method)
            assert headers["cache-control"] == "no-store"
            assert method == "HEAD" or "Sign in to see what runs here" in body
    for path in ("/_stcore/stream", "/", "/sign-in", "/_stcore/health", "/healthz"):
        assert asked(path, kind="websocket", origin=ADDRESS)[0] == 1008
    for path in (signin.SIGN_IN, signin.LOGIN, signin.CALLBACK, signin.ALIVE):
        assert asked(path, method="POST")[0] == 401


def test_a_probe_learns_whether_all_is_well_and_with_the_token_everything(file: Path) -> None:
    status, _, body = asked("/healthz")
    assert (status, json.loads(body)) == (503, {"status": "wrong"})
    assert asked("/healthz", method="POST")[0] == 401
    assert asked("/metrics")[0] == 401
    for wrong in ("Bearer ", "Bearer a token for Prometheus2", "", "a token for prometheus", "é"):
        assert asked("/metrics", authorization=wrong)[0] == 401
    token = "Bearer a token for Prometheus"
    assert asked("/metrics", authorization=token)[2] == "names and numbers"
    assert asked("/healthz", authorization=token)[2] == "names and numbers"
    assert asked("/launch", authorization=token)[0] == 401
    file.write_text(file.read_text().replace('watch_token = "a token for Prometheus"', ""))
    assert asked("/metrics", authorization="Bearer ")[0] == 401


def test_viewers_pass_without_files_operators_with_and_others_are_told_so(known: Team) -> None:
    viewer, operator, nobody = (
        header(cookies(known, claims(who))) for who in ("vic", "oda", "x<b>")
    )
    upload = "/_stcore/upload_file/session/file"
    assert asked("/launch", whose=viewer)[0] == asked("/launch", whose=operator)[0] == 0
    for method in ("PUT", "DELETE", "POST"):
        assert asked(upload, whose=viewer, method=method)[0] == 403
        assert asked(upload, whose=operator, method=method)[0] == 0
    status, _, body = asked("/launch", whose=nobody)
    assert status == 403 and "x&lt;b&gt;@example.org may not look" in body and "<b>" not in body
    assert asked("/_stcore/stream", kind="websocket", whose=nobody, origin=ADDRESS)[0] == 1008
    # Browsers always say where a page is from; whoever does not is none.
    assert asked("/_stcore/stream", kind="websocket", whose=viewer)[0] == 1008
    assert asked("/_stcore/stream", kind="websocket", whose=viewer, origin=ADDRESS)[0] == 0


@pytest.mark.parametrize(
    ("wanted", "goes_to"),
    [
        ("/compare?experiment=a&b=c", "/compare?experiment=a&b=c"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example", "/"),
        ("/x\r\nset-cookie: a=b", "/"),
        ("javascript:alert(1)", "/"),
        ("/" + "a" * 3000, "/"),
        ("/é", "/"),
        ("", "/"),
    ],
)
def test_the_way_back_from_the_sign_in_leads_nowhere_else(wanted: str, goes_to: str) -> None:
    assert signin._inside(wanted) == goes_to


def test_a_page_of_a_stranger_signs_nobody_out(known: Team) -> None:
    whose = header(cookies(known, claims("vic")))
    for site in ("cross-site", "same-site"):
        assert asked("/auth/logout", whose=whose, sec_fetch_site=site)[0] == 403
    assert asked("/launch", whose=whose)[0] == 0
    assert asked("/auth/logout", whose=whose, sec_fetch_site="same-origin")[0] == 0
    assert asked("/launch", whose=whose)[0] == 401


def test_half_a_sign_in_of_somebody_else_that_a_sibling_put_there_is_not_gone_on_with(
    known: Team,
) -> None:
    """Whoever is led to the other half of it would be signed in as that somebody."""
    reached: list[Any] = []
    told: list[Any] = []

    async def behind(scope: Any, receive: Any, send: Any) -> None:
        reached.append(dict(scope["headers"]).get(b"cookie"))
        given = b"_streamlit_session=ours; path=/; Max-Age=9; httponly; samesite=lax"
        headers = [(b"set-cookie", given)]
        await send({"type": "http.response.start", "status": 302, "headers": headers})

    async def send(message: Any) -> None:
        told.append(message)

    sent = b"a=b; _streamlit_session=theirs;__Host-_streamlit_session=ours; _streamlit_session=x"
    scope = {"type": "http", "path": "/oauth2callback", "method": "GET", "query_string": b"",
             "headers": [(b"cookie", sent), (b"cookie", b"_streamlit_session=y")]}  # fmt: skip
    awaited(signin.SignIn(behind)(scope, None, send))
    assert reached == [b"a=b; _streamlit_session=ours"]
    ((_, value),) = [one for one in told[0]["headers"] if one[0] == b"set-cookie"]
    assert value.startswith(b"__Host-_streamlit_session=ours; path=/;") and b"Secure" in value


def test_cookies_travel_encrypted_and_last_as_long_as_a_session(known: Team) -> None:
    told: list[Any] = []

    async def behind(scope: Any, receive: Any, send: Any) -> None:
        given = pieces(claims("vic"), known.cookie_secret)
        pairs = [(b"set-cookie", f"{name}={value}; Path=/; HttpOnly; Max-Age=2592000".encode())
                 for name, value in given.items()]  # fmt: skip
        pairs.append((b"location", b"/"))
        await send({"type": "http.response.start", "status": 302, "headers": pairs})

    async def send(message: Any) -> None:
        told.append(message)

    headers = [(b"cookie", b"breakeven-next=%2Fcompare%3Fexperiment%3Da")]
    scope = {"type": "http", "path": "/oauth2callback", "method": "GET", "query_string": b"",
             "headers": headers}  # fmt: skip
    awaited(signin.SignIn(behind)(scope, None, send))
    (answer,) = told
    given = [value.decode() for name, value in answer["headers"] if name == b"set-cookie"]
    named = dict(answer["headers"])
    assert len(given) == 2 and all("; Secure" in one and "HttpOnly" in one for one in given)
    assert f"Max-Age={12 * 3600}" in given[0] and f"Max-Age={12 * 3600}" in given[1]
    assert named[b"location"] == b"/compare?experiment=a"
    assert b"max-age" in named[b"strict-transport-security"]
    both = dict(one.partition(";")[0].split("=", 1) for one in given)
    person = person_of(both)
    assert person is not None and person.name == "vic@example.org"


def test_an_open_page_is_cut_off_once_its_session_or_its_role_is_over(
    file: Path, known: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signin, "LOOK_SECONDS", 0.01)
    sent, got = [], []

    async def through() -> None:
        is_closed = asyncio.Event()

        async def behind(scope: Any, receive: Any, send: Any) -> None:
            got.append((await receive())["type"])
            file.write_text(file.read_text().replace("vic@", "nobody@"))
            got.append((await receive())["type"])
            await send({"type": "websocket.send", "bytes": b"too late"})

        async def receive() -> Any:
            if got:
                await is_closed.wait()
            return {"type": "websocket.receive", "bytes": b"click"}

        async def send(message: Any) -> None:
            sent.append(message)
            is_closed.set()

        headers = [(b"cookie", header(cookies(known, claims("vic"))).encode()),
                   (b"origin", ADDRESS.encode())]  # fmt: skip
        scope = {"type": "websocket", "path": "/_stcore/stream", "query_string": b"",
                 "headers": headers}  # fmt: skip
        await signin.SignIn(behind)(scope, receive, send)

    awaited(through())
    assert got == ["websocket.receive", "websocket.disconnect"]
    assert [one["type"] for one in sent] == ["websocket.close"]


def test_while_the_file_is_of_no_use_everybody_is_a_stranger(file: Path, known: Team) -> None:
    whose = header(cookies(known, claims("oda")))
    file.unlink()
    for path in ("/", "/healthz", "/metrics", "/sign-in", "/_stcore/upload_file/a/b"):
        status, _, body = asked(path, whose=whose)
        assert status == 503 and "Nobody can sign in" in body
    assert asked("/_stcore/stream", kind="websocket", whose=whose, origin=ADDRESS)[0] == 1008
