"""Run the service, additional runners, and the demonstration."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from getpass import getuser
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from server.cli.failures import Failed
from server.cli.options import StorageOptions
from server.cli.output import Json, note
from server.cli.port import listening_socket, next_free_socket

if TYPE_CHECKING:
    import socket as sockets

    from server.settings import Settings


def demo(
    once: Annotated[
        bool, typer.Option("--once", help="Exit after the campaigns instead of serving the pages.")
    ] = False,
    simulated: Annotated[
        bool,
        typer.Option(
            "--simulated",
            help="Run only the simulated campaign; PyTorch is not needed.",
        ),
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            envvar="AUTOTUNE_PORT",
            show_envvar=False,
            help="Port of the pages.  \\[default: AUTOTUNE_PORT, else 8765 or a free one]",
        ),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir",
            envvar="AUTOTUNE_DATA_DIR",
            show_envvar=False,
            help="Folder for all data.  \\[default: AUTOTUNE_DATA_DIR, else a new temporary "
            "folder]",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Start a service, tune three small examples, and print the recommendations.

    A tiny GPT is tuned by real training runs on this machine. Llama 3 70B on 8 DGX H100 nodes is
    simulated. It takes about two minutes, then the pages stay up until Ctrl-C. With --json
    stdout is one JSON object.
    """
    from server.demo import run

    run(once=once, port=port, data_dir=data_dir, json=json, simulated=simulated)


def serve(
    storage: StorageOptions,
    host: Annotated[
        str | None,
        typer.Option(
            "--host", help="Address to listen on.  \\[default: AUTOTUNE_HOST, else 127.0.0.1]"
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", help="Port to listen on; 0 takes any.  \\[default: AUTOTUNE_PORT, else 8765]"
        ),
    ] = None,
    socket: Annotated[
        Path | None,
        typer.Option(
            "--socket",
            help="Unix socket to listen on instead of a port; `--url unix:PATH` reaches it.",
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None,
        typer.Option(
            "--tls-cert",
            metavar="FILE",
            help="Certificate of the service (PEM); enables TLS.  \\[default: AUTOTUNE_TLS_CERT]",
        ),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option(
            "--tls-key",
            metavar="FILE",
            help="Key of the certificate.  \\[default: AUTOTUNE_TLS_KEY]",
        ),
    ] = None,
    insecure_http: Annotated[
        bool | None,
        typer.Option(
            "--insecure-http",
            help="Listen on the network without TLS; others can then read tokens.  \\[default: "
            "AUTOTUNE_INSECURE_HTTP]",
            show_default=False,
        ),
    ] = None,
    no_runner: Annotated[
        bool,
        typer.Option("--no-runner", help="Do not run campaigns; leave that to `autotune runner`."),
    ] = False,
    group: Annotated[
        bool | None,
        typer.Option(
            "--group",
            help="Admit the users of `autotune users`, each with a token and a scope.  "
            "\\[default: AUTOTUNE_GROUP]",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Serve the REST API and the pages, and run campaigns, until Ctrl-C.

    The service answers only its own user, or with --group the users of a group. `autotune` connects
    through a Unix socket in the data folder, and a browser through the printed address. If the port
    is taken, the next free one is used.

    Beyond loopback, TLS is required: --tls-cert and --tls-key, or a proxy.

    Each database has one service: a second one is refused.
    """
    settings = storage.settings(
        host=host,
        port=port,
        socket=str(socket.absolute()) if socket else None,
        tls_cert=tls_cert,
        tls_key=tls_key,
        insecure_http=insecure_http,
        group=group,
    )
    with _listening(settings) as (actual, bound):
        # These load the whole service, half a second that other commands should not take.
        from server.service import run

        with _ended_by_signal(), refusing_databases():
            run(actual, bound, with_runner=not no_runner, ready=note)


def runner(
    storage: StorageOptions,
    evaluators: Annotated[
        str | None,
        typer.Option(
            "--evaluators",
            help="Evaluators whose campaigns it takes: simulated, local, slurm, ray, such as "
            "`slurm,ray`.  \\[default: AUTOTUNE_EVALUATORS, else all]",
        ),
    ] = None,
    as_me: Annotated[
        bool,
        typer.Option(
            "--as-me", help="Take only the campaigns of one user; their trials run as you."
        ),
    ] = False,
    user: Annotated[
        str | None,
        typer.Option("--as", help="That user of the service.  \\[default: your login's name]"),
    ] = None,
) -> None:
    """Run campaigns for a service with the same database, without serving.

    On PostgreSQL, any number of runners may work, and each claims campaigns that are free; on
    SQLite, `autotune serve` starts the only one.
    """
    from server.logs import configure
    from server.store.engine import parse_url

    settings = storage.settings(
        evaluators=evaluators.split(",") if evaluators else None,
        runner_user=user or (getuser() if as_me else None),
    )
    parse_url(settings.url)
    with refusing_databases():
        from server.runner.runner import run_until_stopped  # heavy

        configure(settings, "runner", terminal=True)
        with _ended_by_signal():
            whose = f" of {settings.runner_user}" if settings.runner_user else ""
            note(f"works on campaigns{whose} of {settings.data_dir}; Ctrl-C ends it")
            run_until_stopped(settings)


@contextmanager
def _listening(settings: Settings) -> Iterator[tuple[Settings, sockets.socket]]:
    """Yield a listening socket for the settings, and the settings with its port.

    If the port was not requested explicitly and is in use, the next free one is taken.
    """
    from server.auth.encryption import Encryption, listening_unix_socket

    if settings.socket:
        with listening_unix_socket(Path(settings.socket)) as bound:
            yield settings, bound
        return
    Encryption(settings).demand()
    listen = listening_socket if "port" in settings.model_fields_set else next_free_socket
    with listen(settings.host, settings.port) as bound:
        number = bound.getsockname()[1]
        if settings.port not in {0, number}:
            note(f"port {settings.port} is in use by another program; {number} is taken instead")
        yield settings.model_copy(update={"port": number}), bound


@contextmanager
def refusing_databases() -> Iterator[None]:
    """Raise Failed with advice if the database is in use by another process, or has the schema of
    an unsupported version.

    Raises:
        Failed: the database is refused.
    """
    from server.store import DatabaseReplaced, InUse, UnknownSchema

    try:
        yield
    except InUse as error:
        raise Failed(f"{error}; end that one first, or choose another with --data-dir") from None
    except UnknownSchema as error:
        raise Failed(f"{error}, or choose another database with --data-dir") from None
    except DatabaseReplaced as error:
        raise Failed(str(error)) from None


@contextmanager
def _ended_by_signal() -> Iterator[None]:
    def end(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
        raise typer.Exit(0)

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
