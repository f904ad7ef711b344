"""TLS: who is let in over it, and that a client believes the right authority alone."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune import Client
from autotune.errors import ServiceUnreachable
from search_spaces.errors import InvalidInput
from server.auth.encryption import Encryption
from server.settings import Settings
from tests.requirement import require
from tests.serving import Served, serving

pytestmark = pytest.mark.xdist_group("tls")
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1")


def openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two authorities, and what one of them has signed for 127.0.0.1."""
    require(shutil.which("openssl"), "openssl")
    folder = tmp_path_factory.mktemp("certificates")
    for name in ("authority", "other"):
        files = ("-keyout", f"{name}.key", "-out", f"{name}.pem")
        openssl(folder, "req", "-x509", *KEY, "-subj", f"/CN={name}", *files)
    signed_by = ("-CA", "authority.pem", "-CAkey", "authority.key")
    names = ("-subj", "/CN=tuning", "-addext", "subjectAltName=IP:127.0.0.1")
    request = ("req", "-x509", *KEY, *names, "-addext", "basicConstraints=critical,CA:FALSE")
    openssl(folder, *request, *signed_by, "-keyout", "service.key", "-out", "service.pem")
    return folder


@pytest.fixture(scope="module")
def service(certificates: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    files = ("--tls-cert", certificates / "service.pem", "--tls-key", certificates / "service.key")
    data = tmp_path_factory.mktemp("data")
    with serving(data, "--no-runner", *map(str, files)) as served:
        yield served


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on another machine: no service of this user is noted here."""
    for name in ("XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))


@pytest.mark.usefixtures("elsewhere")
def test_a_token_goes_to_whom_the_authority_has_signed(
    service: Served, certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert service.url.startswith("https://127.0.0.1:")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates / "authority.pem"))
    with Client(service.url, token_file=service.token_file) as client:
        assert client.whoami().scope == "admin"
        with pytest.raises(ServiceUnreachable, match="no service of yours answers at"):
            Client(service.url).whoami()


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(
    ("authority", "host", "reason"),
    [
        ("other.pem", "127.0.0.1", "unable to get local issuer certificate"),
        ("authority.pem", "[::ffff:127.0.0.1]", "IP address mismatch"),
    ],
)
def test_nothing_is_sent_to_anybody_else(
    service: Served,
    certificates: Path,
    monkeypatch: pytest.MonkeyPatch,
    authority: str,
    host: str,
    reason: str,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates / authority))
    url = service.url.replace("127.0.0.1", host)
    with (
        Client(url, token_file=service.token_file) as client,
        pytest.raises(ServiceUnreachable, match=rf"cannot be verified .*{reason}.*SSL_CERT_FILE"),
    ):
        client.whoami()


def test_its_own_user_needs_no_authority(service: Served) -> None:
    with Client(service.url) as owner:
        assert owner.whoami().name is None
        assert owner.browser_address().startswith(service.url)


def test_files_that_are_no_certificate_are_named(certificates: Path, tmp_path: Path) -> None:
    good, key = certificates / "service.pem", certificates / "authority.key"
    for cert in (tmp_path / "none", key, good):
        with pytest.raises(InvalidInput, match="TLS cannot use it") as refused:
            Encryption(Settings(tls_cert=cert, tls_key=key)).demand()
        assert (refused.value.field, refused.value.value) == ("tls_cert", str(cert))
    with pytest.raises(ValueError, match="a key needs its certificate"):
        Settings(tls_key=key)
    with pytest.raises(ValueError, match="TLS is for a port"):
        Settings(tls_cert=good, socket="/tmp/s")
