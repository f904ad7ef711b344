"""What another user of this machine can do to a service, its data and its user: nothing."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from autotune import Client
from autotune.client.credentials import PROOF
from autotune.client.service_record import known_folder
from autotune.errors import ServiceNotProven
from tests.flaky_proxy import flaky_proxy
from tests.requirement import require
from tests.server.asking import body
from tests.serving import Served, serving

pytestmark = pytest.mark.xdist_group("other-users")
PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
STRANGER = "nobody"

TRY_ALL = """
import json, socket, sys, urllib.error, urllib.request
url, paths, unix = json.loads(sys.argv[1])
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
    for header in ("", "Bearer ", "Bearer guess", "Bearer autotune1.1.x.y"):
        asked = urllib.request.Request(url + path, method=method)
        if header:
            asked.add_header("Authorization", header)
        try:
            status = urllib.request.urlopen(asked, timeout=10).status
        except urllib.error.HTTPError as error:
            status = error.code
        got[f"{method} {path} {header}"] = status
try:
    socket.socket(socket.AF_UNIX).connect(unix)
    got["unix"] = "connected"
except OSError as error:
    got["unix"] = type(error).__name__
print(json.dumps(got))
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """With a campaign, in a folder that all may pass through on their way to it."""
    folder = tmp_path_factory.mktemp("owner")
    for parent in (folder, *folder.parents[:2]):
        parent.chmod(0o755)
    with serving(folder / "data", "--no-runner") as served:
        asked = httpx2.post(f"{served.url}/api/v1/campaigns", json=body(), headers=served.headers)
        assert asked.status_code == 201
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
            timeout=60,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    return run


def test_another_user_reads_and_changes_nothing(
    service: Served, as_stranger: Callable[..., str], tmp_path: Path
) -> None:
    noted = list(known_folder().iterdir())
    inside = [*service.data_dir.rglob("*"), *noted, service.data_dir / "service.json"]
    asked = json.dumps([service.url, [str(path) for path in inside], str(tmp_path / "none")])
    got = json.loads(as_stranger(TRY_ALL, asked))
    assert {got[str(path)] for path in inside} == {"PermissionError"}
    answered = {asked: status for asked, status in got.items() if " /" in asked}
    assert len(answered) > 40
    let_through = {asked for asked, status in answered.items() if status != 401}
    assert let_through == {asked for asked in answered if asked.startswith("GET /healthz ")}
    with Client(service.url) as owner:
        assert [campaign.state for campaign in owner.campaigns()] == ["queued"]


def test_another_user_cannot_open_the_socket(
    as_stranger: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("s")
    for parent in (folder, *folder.parents[:2]):
        parent.chmod(0o755)
    path = folder / "autotune.sock"
    with serving(folder / "data", "--no-runner", "--socket", str(path)) as served:
        with Client(served.url) as owner:
            assert owner.models()
        asked = json.dumps(["http://127.0.0.1:9", [], str(path)])
        program = TRY_ALL.replace("urllib.error.HTTPError as error", "OSError as error").replace(
            "error.code", "0"
        )
        assert json.loads(as_stranger(program, asked))["unix"] == "PermissionError"
    assert not path.exists()


def test_whoever_has_the_port_of_a_service_that_is_gone_learns_and_serves_nothing(
    service: Served,
) -> None:
    with (
        flaky_proxy(service.url) as (url, squatter),
        Client(url) as victim,
        pytest.raises(ServiceNotProven, match="no service of yours"),
    ):
        victim.create(model="gpt-22b", machine="frontier", nodes=2)
    assert [head.split()[:2] for head in squatter.requests] == [["GET", "/healthz"]]


def test_whoever_hands_requests_on_to_the_service_reads_nothing(
    service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user has named the squatter's address, and the service's token."""
    token = service.headers["Authorization"].removeprefix("Bearer ")
    monkeypatch.setenv("AUTOTUNE_TOKEN", token)
    with (
        flaky_proxy(service.url) as (url, squatter),
        Client(url) as victim,
        pytest.raises(ServiceNotProven, match=r"did not prove .* \(status 401\)"),
    ):
        victim.campaign(1)
    (head,) = squatter.requests
    assert token not in head
    credential = next(
        line.partition(": ")[2] for line in head.splitlines() if "authorization" in line.lower()
    )
    taken = httpx2.get(
        f"{service.url}/api/v1/campaigns/1",
        headers={"Authorization": credential},
        trust_env=False,
    )
    assert taken.status_code == 401
    assert PROOF not in taken.headers


def test_a_credential_is_good_for_one_request_alone(
    service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As seen by somebody who listens on a network between the two."""
    monkeypatch.setenv("AUTOTUNE_TOKEN_FILE", str(service.token_file))
    with flaky_proxy(service.url) as (url, listener), Client(url) as owner:
        owner.campaign(1)
    head = listener.requests[0]
    credential = next(
        line.partition(": ")[2] for line in head.splitlines() if "authorization" in line.lower()
    )
    statuses = {
        httpx2.request(
            method,
            service.url + path,
            headers={"Authorization": credential},
            trust_env=False,
        ).status_code
        for method, path in [
            ("DELETE", "/api/v1/campaigns/1"),
            ("GET", "/api/v1/campaigns/1?more=1"),
            ("GET", "/api/v1/campaigns"),
        ]
    }
    assert statuses == {401}
