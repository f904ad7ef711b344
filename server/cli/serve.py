"""Running the service, and runners beside it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated, NoReturn

import typer

from server.cli.configured import StorageOptions
from server.cli.failures import Failed
from server.cli.output import note
from server.cli.port import listening_socket


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
    runner: Annotated[
        bool, typer.Option("--runner/--no-runner", help="Work on campaigns, too.")
    ] = True,
) -> None:
    """Serve the REST API and the pages, and work on campaigns, until Ctrl-C.

    One service for each database: a second one is refused.
    """
    settings = storage.settings(host=host, port=port)
    with listening_socket(settings.host, settings.port) as bound:
        actual = settings.model_copy(update={"port": bound.getsockname()[1]})
        # These load the whole service: half a second that other commands need not wait.
        from server.service import run

        with ended_by_signal(), one_sentence_for_a_second():
            run(actual, bound, with_runner=runner, ready=note)


def runner(storage: StorageOptions) -> None:
    """Work on campaigns without serving, beside a service that has the same database.

    On PostgreSQL there may be any number; on SQLite `autotune serve` brings its own.
    """
    from server.runner import run

    settings = storage.settings()
    with ended_by_signal(), one_sentence_for_a_second():
        note(f"works on campaigns of {settings.data_dir}; Ctrl-C ends it")
        run(settings)


@contextmanager
def one_sentence_for_a_second() -> Iterator[None]:
    from server.store import InUse

    try:
        yield
    except InUse as error:
        raise Failed(f"{error}; end that one first, or choose another with --data-dir") from None


@contextmanager
def ended_by_signal() -> Iterator[None]:
    """Ctrl-C and SIGTERM are how a service is ended: it cleans up, and its exit code is 0."""

    def end(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
        raise typer.Exit(0)

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
