"""Users of a shared service: managed at its database, or signed in as one of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.files import write_whole
from autotune.schemas.choices import UserScope
from search_spaces.errors import InvalidInput
from server.cli.commands.serve import refusing_databases
from server.cli.failures import Failed
from server.cli.option_groups import chosen
from server.cli.options import ServiceOptions, StorageOptions
from server.cli.output import Json, document, note, out, text

if TYPE_CHECKING:
    from autotune.schemas.users import User
    from server.settings import Settings
    from server.store import Store

HELP = """Manage the users of a shared service: list, add, revoke.

`add` and `revoke` write to the database: use them to add the first admin before `autotune serve
--group`. `list` asks the service, as its admin; it reads the database if no service answers, or
if one is named. Each user has a token, which is printed once; the database stores only its hash.

Scopes, each including those before it: `read` sees the group's campaigns; `submit` creates
campaigns, and changes its own; `admin` changes all, sees private ones, and manages users.
"""

Name = Annotated[str, typer.Argument(metavar="NAME", help="The user's name.")]
NewName = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Letters, digits and ._@+-."),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="FILE", help="Write the token to this file (0600) instead of printing it."
    ),
]


def list_(storage: StorageOptions, service: ServiceOptions, json: Json = False) -> None:
    """List the users of the service, for its admins, or of a database."""
    from server.cli.tables import service as service_table

    users = _users(storage, service)
    if json:
        return document(users)
    if not users:
        return note("no users: add one with `autotune users add NAME --scope admin`")
    return out().print(service_table.users(users))


def add(
    name: NewName,
    storage: StorageOptions,
    scope: Annotated[
        UserScope | None,
        typer.Option(
            "--scope", help="Scope of the user.  \\[default: submit, or what the user has]"
        ),
    ] = None,
    out_file: Out = None,
    json: Json = False,
) -> None:
    """Add a user, or give one a new token or another scope, and print the token once.

    The user enters it in `autotune login`, or on the sign-in page. The token that an existing user
    had before is no longer valid; a revoked user is admitted again.
    """
    from autotune.schemas.users import UserCreate
    from autotune.schemas.validation import validated
    from server.store.users import account_of, add_user

    user = validated(UserCreate, {"name": name} | chosen(scope=scope))
    with _made(storage) as store, store.transaction() as session:
        before = account_of(session, name)
        token = add_user(session, user)
        after = account_of(session, name)
    if before is not None and after is not None:
        note(f"{name} has the scope {after.scope}; the previous token is no longer valid")
    _tell(name, token, out_file, json=json)


def revoke(name: Name, storage: StorageOptions, json: Json = False) -> None:
    """Revoke a user's access, including browser sessions; the user's campaigns continue."""
    from server.cli.tables import service as service_table
    from server.store.users import revoke_user

    with _existing(storage.settings()) as store, store.transaction() as session:
        user = revoke_user(session, name)
    if json:
        return document(user)
    note(f"the access of {name} is revoked")
    if user.unfinished_campaigns:
        note(f"{service_table.unfinished(user)}; an admin may cancel them")
    return None


def login(service: ServiceOptions, json: Json = False) -> None:
    """Store the token of a service, so that every command finds it.

    The token is read from a prompt or stdin, and stored for this user only (0600).
    Commands without --url then use this service, unless your own is running.
    """
    from autotune.client.client import Client
    from autotune.client.known_services import Login, login_at
    from autotune.client.location import default_url, plain_url
    from server.cli.tables import service as service_table

    url = plain_url(service.url or default_url())
    token = _read_token(url)
    before = login_at(url)
    login = Login(url=url, token=token)
    path = login.keep()
    try:
        with Client(url) as client:
            me = client.whoami()
    except BaseException:
        if before is None:
            path.unlink(missing_ok=True)
        else:
            before.keep()
        raise
    if json:
        return document({"url": url, "file": str(path)} | me.model_dump())
    return note(f"{service_table.who(me)} at {url}; the token is in {path}")


def logout(service: ServiceOptions, json: Json = False) -> None:
    """Delete the stored token of a service; the token stays valid until an admin gives another."""
    from autotune.client.known_services import login_at, login_path, logins
    from autotune.client.location import default_url, plain_url

    last = next(logins(), None)
    url = plain_url(service.url or (last.url if last else default_url()))
    if login_at(url) is None:
        raise Failed(f"no token is stored for {url}")
    login_path(url).unlink()
    return document({"url": url}) if json else note(f"the token for {url} is deleted")


def _read_token(url: str) -> str:
    from autotune.client.location import is_token

    if not sys.stdin.isatty():
        token = sys.stdin.readline().strip()
    else:
        token = typer.prompt(f"token for {url}", hide_input=True, err=True).strip()
    if not is_token(token):
        raise InvalidInput("token", None, "no token was given", valid="the one an admin gave you")
    return str(token)


def _tell(name: str, token: str, file: Path | None, *, json: bool) -> None:
    if file is not None:
        write_whole(file, token + "\n", private=True)
        token = ""
    if json:
        return document({"name": name, "token": token or None, "file": file and str(file)})
    if file is not None:
        return note(f"the token of {name} is in {file}")
    text(token)
    return note(f"this is the token of {name}, which is shown once")


def _users(storage: StorageOptions, service: ServiceOptions) -> Sequence[User]:
    from autotune.errors import ServiceUnreachable
    from server.store.users import list_users

    if not storage.given():
        try:
            with service.client() as client:
                return client.users()
        except ServiceUnreachable:
            if service.url:
                raise
    with _existing(storage.settings()) as store, store.session() as session:
        return list_users(session)


@contextmanager
def _made(storage: StorageOptions) -> Iterator[Store]:
    from server.data_folder import closed_folder
    from server.store import Store

    settings = storage.settings()
    closed_folder(settings.data_dir)
    with refusing_databases(), closing(Store(settings.url)) as store:
        store.upgrade()
        yield store


@contextmanager
def _existing(settings: Settings) -> Iterator[Store]:
    """Open an existing database; it is never created.

    Raises:
        Failed: there is none, or its schema is of another version.
    """
    from server.store import Store
    from server.store.engine import parse_url

    url = parse_url(settings.url)
    if url.get_dialect().name == "sqlite" and not Path(str(url.database)).exists():
        raise Failed(f"there is no database {url.database}; choose one with --data-dir")
    with closing(Store(settings.url)) as store:
        if fault := store.schema_fault():
            raise Failed(f"the database {store.shown} cannot be used: {fault}")
        yield store
