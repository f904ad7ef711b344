"""Authentication of requests, by the first of these that applies:

1. The request came through the Unix socket that only the service's own user can open.
2. A trusted proxy names the user in a header.
3. It has the token for the metrics only.
4. It has a bearer token: the service's own, or a user's.
5. It has a browser's session cookie. A session begins with a one-time key, or with a token on the
   sign-in page.
"""

from __future__ import annotations

import hmac
import re
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import structlog
from fastapi.concurrency import run_in_threadpool
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.datastructures import Headers
from starlette.requests import Request, cookie_parser
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from autotune.schemas.choices import UserScope
from autotune.schemas.users import USER_NAME
from server.auth.encryption import Encryption
from server.auth.origin import INERT
from server.auth.permissions import CALLER, Caller
from server.problems import problem
from server.settings import Settings
from server.store import Store
from server.store.errors import DatabaseReplaced, cause
from server.store.users import (
    Account,
    account_of,
    add_proxy_user,
    new_token,
    note_use,
    token_hash,
    user_of,
)

SIGN_IN = "/enter"
METRICS = "/metrics"
STATIC = "/static/"
OPEN_TO_ALL = frozenset({"/healthz", "/readyz"})
OWN_SOCKET = "autotune.own_socket"
"""Key in the state of a connection that came through the service's own Unix socket."""

MOST_KEYS = 100
"""Sign-in keys of one user; the oldest is dropped."""
MOST_SESSIONS = 1000
"""Sessions of one user; the oldest ends."""
SESSION_S = 7 * 24 * 3600.0
MOST_FAILURES = 10
"""Wrong tokens of one user from one address within FAILURES_S, after which the sign-in page refuses
all tokens. Counted per user, because users behind one proxy share an address."""
FAILURES_S = 300.0
LONGEST_NAME = 64
MOST_COUNTED = 10_000
"""Maximum pairs of an address and a user for which wrong tokens are counted."""

ASK = (
    "a token is needed: on another machine, set AUTOTUNE_TOKEN to the token in service.json of the "
    "data folder; where the service runs, `autotune` needs none, and the address that `autotune "
    "ls` prints there signs a browser in"
)
ASK_USER = (
    "a user's token is needed: store yours with `autotune login`, or set AUTOTUNE_TOKEN; in a "
    "browser, sign in on this service's page"
)
UNKNOWN_TOKEN = (
    "this token is not valid: ask an admin for a new one; a service of your own has a new token "
    "after each start, unless it reads it from a file"
)
TOO_MANY_FAILURES = "too many tokens were wrong; wait some minutes before the next one"
UNENCRYPTED = (
    "HTTP is not encrypted, and whoever listens on the network could read tokens and answers: use "
    "https, or a tunnel to loopback (ssh -L); an admin may allow it by AUTOTUNE_INSECURE_HTTP"
)
log = structlog.get_logger(__name__)


class NotAuthenticated(Exception):
    """Nobody is authenticated; the message says why."""

    def __init__(self, reason: str, *, status: HTTPStatus = HTTPStatus.UNAUTHORIZED) -> None:
        super().__init__(reason)
        self.status = status


class Authentication:
    """Middleware that passes on authenticated requests over encrypted or local connections.

    Args:
        sign_in_page: returns the page for a browser without a session, given the address to
            continue with.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        authenticator: Authenticator,
        settings: Settings,
        sign_in_page: Callable[[Request, str], Response],
    ) -> None:
        self.app = app
        self.authenticator = authenticator
        self.sign_in_page = sign_in_page
        self.encryption = Encryption(settings)
        self.metrics_token_file = settings.metrics_token_file
        self.user_header = settings.proxy_user_header
        self.new_users: UserScope | None = settings.proxy_new_users or None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or is_open(scope["path"]):
            await self.app(scope, receive, send)
            return
        if not self.encryption.covers(scope):
            await problem(HTTPStatus.FORBIDDEN, UNENCRYPTED, headers=INERT)(scope, receive, send)
            return
        try:
            if self.authenticator.is_group:
                account = await run_in_threadpool(self._account, scope)
            else:
                account = self._account(scope)
            scope[CALLER] = caller_for(account)
        except NotAuthenticated as refusal:
            if scope["path"] != SIGN_IN:
                await self._refuse(str(refusal), scope, receive, send)
                return
        except (DBAPIError, PoolTimeout, DatabaseReplaced) as error:
            log.error("users_unreadable", error=cause(error))
            detail = "the database does not answer now, so that nobody is known"
            headers = {**INERT, "Retry-After": "2"}
            busy = problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, headers=headers)
            await busy(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _account(self, scope: Scope) -> Account:
        headers = Headers(scope=scope)
        token = headers.get("authorization", "").removeprefix("Bearer ")
        if scope.get("state", {}).get(OWN_SOCKET) and not token:
            return self.authenticator.service_account
        if self.user_header and self.user_header in headers and self.encryption.is_proxied(scope):
            names = headers.getlist(self.user_header)
            if len(names) != 1:
                raise NotAuthenticated(f"{self.user_header} is there several times")
            return self.authenticator.by_proxy(names[0], new_users=self.new_users)
        if scope["path"] == METRICS and is_metrics_token(token, self.metrics_token_file):
            return self.authenticator.service_account
        if token:
            return self.authenticator.by_token(token)
        return self.authenticator.by_session(session_of(headers))

    async def _refuse(self, reason: str, scope: Scope, receive: Receive, send: Send) -> None:
        wants_page = "text/html" in Headers(scope=scope).get("accept", "")
        if wants_page and not scope["path"].startswith("/api/"):
            request = Request(scope)
            query = f"?{request.url.query}" if request.url.query else ""
            page = self.sign_in_page(request, f"{request.url.path}{query}")
            await page(scope, receive, send)
            return
        headers = {**INERT, "WWW-Authenticate": "Bearer"}
        refused = problem(HTTPStatus.UNAUTHORIZED, reason, headers=headers)
        await refused(scope, receive, send)


@dataclass(frozen=True, kw_only=True)
class BrowserSession:
    """A browser's session, or a sign-in key that begins one.

    Attributes:
        user: empty for the service's own user.
        token_hash: of the user's token at its beginning; a new token ends the session.
        began_s: by `time.monotonic`.
    """

    user: str
    token_hash: str | None
    began_s: float


class Authenticator:
    """Finds the account of a token, a session or a user whom a proxy names. Safe for threads.

    Args:
        token: the service's own token; None generates one.
        store: the database with the users; None where only the service's own user has access.
    """

    def __init__(self, token: str | None = None, *, store: Store | None = None) -> None:
        self.token = token or new_token()
        self.store = store
        self.service_account = Account(
            name="", scope="admin", token_hash=token_hash(self.token), revoked=False, noted=None
        )
        self._lock = threading.Lock()
        self._keys: OrderedDict[str, BrowserSession] = OrderedDict()
        self._sessions: OrderedDict[str, BrowserSession] = OrderedDict()
        self._failures: OrderedDict[tuple[str, str], deque[float]] = OrderedDict()

    @property
    def is_group(self) -> bool:
        return self.store is not None

    def by_token(self, token: str) -> Account:
        return self._admitted(self._owner(token), refusal=UNKNOWN_TOKEN)

    def by_session(self, cookie: str) -> Account:
        """Return the account of a session cookie; raises NotAuthenticated if the session has
        ended."""
        with self._lock:
            session = self._sessions.get(cookie)
        account = None
        if session is not None and time.monotonic() - session.began_s <= SESSION_S:
            account = self._account(session.user)
            if account is not None and session.token_hash != account.token_hash:
                account = None
        return self._admitted(account, refusal=ASK_USER if self.is_group else ASK)

    def by_proxy(self, name: str, *, new_users: UserScope | None) -> Account:
        """Return the account of a user whom a proxy has authenticated; raises NotAuthenticated.

        Args:
            new_users: scope with which unknown users are added; None to refuse them.
        """
        account = self._account(name) if name else None
        if account is None and new_users and self.store is not None and re.match(USER_NAME, name):
            try:
                with self.store.transaction() as session:
                    add_proxy_user(session, name, new_users)
            except IntegrityError:
                log.info("user_added_by_another_request", user=name)
            account = self._account(name)
        refusal = f"{name[:LONGEST_NAME]!r} is no user of this service; an admin adds users"
        return self._admitted(account, refusal=refusal)

    def new_key(self, user: str | None = None) -> str:
        """Return a key with which one browser can sign in once as this user; None for the service's
        own user."""
        key = secrets.token_urlsafe(24)
        session = self._new_session(user or "")
        with self._lock:
            _keep(self._keys, key, session, most=MOST_KEYS)
        return key

    def redeem(self, key: str) -> str | None:
        with self._lock:
            session = self._keys.pop(key, None)
            return None if session is None else self._begin(session)

    def sign_in(self, token: str, *, address: str) -> tuple[Account, str]:
        """Return the account of a token, and the cookie of a new session; raises NotAuthenticated,
        also after MOST_FAILURES wrong tokens from this address."""
        tried = (address, user_of(token)[:LONGEST_NAME])
        if self._has_failed_often(tried):
            raise NotAuthenticated(TOO_MANY_FAILURES, status=HTTPStatus.TOO_MANY_REQUESTS)
        found = self._owner(token)
        if found is None:
            self._note_failure(tried)
        account = self._admitted(found, refusal=UNKNOWN_TOKEN)
        session = self._new_session(account.name)
        with self._lock:
            return account, self._begin(session)

    def sign_out(self, cookie: str) -> None:
        with self._lock:
            self._sessions.pop(cookie, None)

    def _owner(self, token: str) -> Account | None:
        account = self._account(user_of(token))
        stored = account.token_hash if account else None
        return account if stored and hmac.compare_digest(stored, token_hash(token)) else None

    def _account(self, name: str) -> Account | None:
        if not name:
            return self.service_account
        if self.store is None or not re.match(USER_NAME, name):
            return None
        with self.store.session() as session:
            return account_of(session, name)

    def _admitted(self, account: Account | None, *, refusal: str) -> Account:
        if account is None:
            raise NotAuthenticated(refusal)
        if account.revoked:
            reason = f"the user {account.name} was revoked; an admin can let them in again"
            raise NotAuthenticated(reason)
        if self.store is not None and account.name and account.is_to_be_noted:
            try:
                with self.store.transaction() as session:
                    note_use(session, account.name)
            except SQLAlchemyError as error:
                log.warning("use_not_noted", user=account.name, error=str(error))
        return account

    def _has_failed_often(self, tried: tuple[str, str]) -> bool:
        with self._lock:
            failures = self._failures.get(tried)
            while failures and time.monotonic() - failures[0] > FAILURES_S:
                failures.popleft()
            return failures is not None and len(failures) >= MOST_FAILURES

    def _note_failure(self, tried: tuple[str, str]) -> None:
        with self._lock:
            self._failures.setdefault(tried, deque(maxlen=MOST_FAILURES)).append(time.monotonic())
            self._failures.move_to_end(tried)
            while len(self._failures) > MOST_COUNTED:
                self._failures.popitem(last=False)

    def _new_session(self, user: str) -> BrowserSession:
        account = self._account(user)
        return BrowserSession(
            user=user,
            token_hash=account.token_hash if account else None,
            began_s=time.monotonic(),
        )

    def _begin(self, session: BrowserSession) -> str:
        cookie = secrets.token_urlsafe(32)
        _keep(self._sessions, cookie, session, most=MOST_SESSIONS)
        return cookie


def caller_for(account: Account) -> Caller:
    return Caller(name=account.name or None, scope=account.scope)


def is_open(path: str) -> bool:
    return path in OPEN_TO_ALL or path.startswith(STATIC)


def is_metrics_token(token: str, file: Path | None) -> bool:
    """Return whether a token is the one in the file of AUTOTUNE_METRICS_TOKEN_FILE, which is read
    for each request, so that the token can be changed without a restart."""
    if file is None or not token:
        return False
    try:
        expected = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        log.warning("metrics_token_unread", file=str(file), error=str(error))
        return False
    return bool(expected) and hmac.compare_digest(expected.encode(), token.encode())


def address_of(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""


def cookie_name(authority: str) -> str:
    """Return the name of a service's cookie. It contains the port, because browsers share cookies
    between all ports of a host."""
    port = authority.rpartition(":")[2]
    return f"autotune-{port}" if port.isdecimal() else "autotune"


def session_of(headers: Headers) -> str:
    cookies = cookie_parser(headers.get("cookie", ""))
    return cookies.get(cookie_name(headers.get("host", "")), "")


def _keep(
    sessions: OrderedDict[str, BrowserSession], key: str, session: BrowserSession, *, most: int
) -> None:
    sessions[key] = session
    own = [other for other, each in sessions.items() if each.user == session.user]
    for other in own[:-most]:
        del sessions[other]
