"""What another user of this machine can do to a service, its data and its user: nothing."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from typer.testing import CliRunner

from autotune import Client
from autotune.client.known_services import known_folder
from autotune.client.patience import Patience
from autotune.errors import ServiceUnreachable
from search_spaces.errors import InvalidInput
from server.auth.encryption import listening_unix_socket, own_socket
from server.cli.application import app
from tests.patience import PATIENCE_S
from tests.requirement import require
from tests.server.asking import body
from tests.serving import Served, serving

pytestmark = [pytest.mark.soak, pytest.mark.xdist_group("other-users")]
PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
STRANGER = "nobody"

TRY_ALL = """
import json, sys, urllib.error, urllib.request
url, paths = json.loads(sys.argv[1])
got = {}
for path in paths:
    try:
        got[path] = open(path, "rb").read().decode("latin-1")
    except IsADirectoryError:
        got[path] = "listed"
    except OSError as error:
        got[path] = type(error).__name__
for method, path in [
    ("GET", "/api/v1/campaigns"), ("GET", "/api/v1/campaigns/1/recommendation/launch"),
    ("GET", "/api/v1/profiles"), ("GET", "/api/v1/openapi.json"), ("GET", "/"),
    ("GET", "/campaigns/1"), ("GET", "/api/v1/events"), ("DELETE", "/api/v1/campaigns/1"),
    ("POST", "/api/v1/campaigns/1/cancel"), ("POST", "/api/v1/browser-keys"),
    ("GET", "/enter?key="), ("GET", "/healthz"),
]:
    for header in ("", "Bearer ", "Bearer guess", "Basic Og=="):
        request = urllib.request.Request(url + path, method=method)
        if header:
            request.add_header("Authorization", header)
        try:
            status = urllib.request.urlopen(request).status
        except urllib.error.HTTPError as error:
            status = error.code
        got[f"{method} {path} {header}"] = status
print(json.dumps(got))
"""

CONNECT = """
import socket, sys
try:
    socket.socket(socket.AF_UNIX).connect(sys.argv[1])
    print("connected")
except OSError as error:
    print(type(error).__name__)
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """With a campaign, in a folder that all may pass through on their way to it."""
    folder = tmp_path_factory.mktemp("owner")
    for parent in (folder, *folder.parents[:2]):
        parent.chmod(0o755)
    with serving(folder / "data", "--no-runner") as served:
        response = httpx2.post(
            f"{served.url}/api/v1/campaigns",
            json=body(),
            headers=served.headers,
            trust_env=False,
        )
        assert response.status_code == 201
        yield served


@pytest.fixture(scope="module")
def as_stranger() -> Callable[..., str]:
    """Runs a program of Python as the user who owns nothing."""
    require(os.geteuid() == 0, "root, to act as another user")
    user = pwd.getpwnam(STRANGER)

    def run(program: str, *arguments: str) -> str:
        ran = subprocess.run(
            [PYTHON, "-I", "-c", program, *arguments],
            user=user.pw_uid,
            group=user.pw_gid,
            extra_groups=[],
            cwd="/",
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    return run


def test_another_user_reads_and_changes_nothing(
    service: Served, as_stranger: Callable[..., str]
) -> None:
    noted = list(known_folder().iterdir())
    inside = [*service.data_dir.rglob("*"), *noted, service.data_dir / "service.json"]
    arguments = json.dumps([service.url, [str(path) for path in inside]])
    got = json.loads(as_stranger(TRY_ALL, arguments))
    assert {got[str(path)] for path in inside} == {"PermissionError"}
    assert as_stranger(CONNECT, service.record["socket"]).strip() == "PermissionError"
    answered = {call: status for call, status in got.items() if " /" in call}
    assert len(answered) > 40
    let_through = {call for call, status in answered.items() if status != 401}
    assert let_through == {call for call in answered if call.startswith("GET /healthz ")}
    with Client(service.url) as owner:
        assert [campaign.state for campaign in owner.campaigns()] == ["queued"]


def test_another_user_cannot_open_a_socket_in_a_public_folder(
    as_stranger: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("s")
    for parent in (folder, *folder.parents[:2]):
        parent.chmod(0o755)
    path = folder / "autotune.sock"
    with listening_unix_socket(path):
        assert as_stranger(CONNECT, str(path)).strip() == "PermissionError"
    assert not path.exists()


def test_a_socket_in_place_of_the_port_admits_by_token(tmp_path: Path) -> None:
    """Nobody by itself: a proxy or a tunnel may lead others to it."""
    path = tmp_path / "autotune.sock"
    with serving(tmp_path / "data", "--no-runner", "--socket", str(path)) as served:
        through = httpx2.HTTPTransport(uds=str(path), verify=False)
        with httpx2.Client(base_url="http://localhost", transport=through) as tunnel:
            assert tunnel.get("/api/v1/whoami").status_code == 401
            assert tunnel.get("/api/v1/whoami", headers=served.headers).status_code == 200
        with Client(served.url) as owner:
            assert owner.whoami().scope == "admin"
    assert not path.exists()


def test_whoever_takes_a_gone_services_port_receives_nothing(
    tmp_path: Path,
) -> None:
    """Neither a token nor what is asked, until the service is there again."""
    with serving(tmp_path, "--no-runner") as served:
        served.process.kill()
        served.process.wait()
        port = urlsplit(served.url).port
        with socket.create_server(("127.0.0.1", port or 0)) as squatter:
            with Client(served.url) as victim, pytest.raises(ServiceUnreachable):
                victim.create(model="gpt-22b", machine="frontier", nodes=2)
            ran = CliRunner().invoke(app, ["ls", "--url", served.url])
            assert ran.exit_code == 3
            assert "no service of yours answers at" in ran.stderr
            squatter.settimeout(0.2)
            with pytest.raises(TimeoutError):
                squatter.accept()
    with serving(tmp_path, "--no-runner") as again, Client(again.url) as owner:
        assert owner.whoami().scope == "admin"


def test_what_goes_through_the_socket_lets_nobody_in_elsewhere(
    service: Served, tmp_path: Path
) -> None:
    """The socket shows who sent it, and nothing in it does: it can be replayed nowhere."""
    path = tmp_path / "s"
    with (
        listening_unix_socket(path) as listener,
        ThreadPoolExecutor() as threads,
        Client(f"unix:{path}", patience=Patience(attempts=1)) as client,
    ):
        creation = threads.submit(client.create, model="gpt-22b", machine="frontier", nodes=2)
        connection, _ = listener.accept()
        with connection:
            sent = connection.recv(65536)
        assert isinstance(creation.exception(timeout=PATIENCE_S), ServiceUnreachable)
    assert sent.startswith(b"POST /api/v1/campaigns ")
    assert b"authorization" not in sent.lower()
    address = urlsplit(service.url)
    with socket.create_connection((address.hostname, address.port)) as replay:
        replay.sendall(sent)
        assert replay.recv(65536).startswith(b"HTTP/1.1 401 ")


def test_a_token_is_taken_from_another_user_of_the_machine(
    service: Served, as_stranger: Callable[..., str]
) -> None:
    """As users of a group send theirs who share the machine, and cannot open the socket."""
    program = """
import sys, urllib.request
request = urllib.request.Request(sys.argv[1], headers={"Authorization": sys.argv[2]})
print(urllib.request.urlopen(request).status)
"""
    url, token = f"{service.url}/api/v1/whoami", service.headers["Authorization"]
    assert as_stranger(program, url, token).strip() == "200"


def test_a_data_folder_with_a_long_path_has_its_socket_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ("d" * 100)
    folder.mkdir()
    with own_socket(folder) as bound:
        path = Path(bound.getsockname())
        assert path.parent == known_folder()
        assert (stat.S_IMODE(path.stat().st_mode), path.parent.stat().st_mode & 0o77) == (0o600, 0)
        with pytest.raises(InvalidInput, match="something listens there already"):
            own_socket(folder).__enter__()
    with own_socket(folder) as bound:
        assert Path(bound.getsockname()) == path
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    with pytest.raises(InvalidInput, match="a path of at most 107 bytes"):
        own_socket(folder).__enter__()
