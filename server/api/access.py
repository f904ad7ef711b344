"""Who may use the service: its own user by its token, users by theirs, and browsers let in."""

from __future__ import annotations

import hmac
import re
import secrets
import threading
import time
from collections import OrderedDict, deque
from dataclasses import dataclass

import structlog
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from autotune.schemas import USER_NAME, UserCreate, UserScope
from server.api.callers import SERVICE, Caller
from server.store import Store
from server.store.errors import Conflict
from server.store.users import Account, account_of, add_user, note_use
from server.tokens import new_token, token_hash, user_of

MOST_KEYS = 100
"""Of one user; the oldest goes."""
MOST_SESSIONS = 1000
"""Of one user; the oldest ends."""
SESSION_S = 7 * 24 * 3600.0
MOST_FAILURES = 10
"""Wrong tokens of one user, from one address within FAILURES_S, before the sign-in page refuses
any. Users who share an address, as behind a proxy, keep each other from nothing."""
FAILURES_S = 300.0
LONGEST_NAME = 64
MOST_COUNTED = 10_000
"""Pairs of an address and a user whose wrong tokens are counted."""
log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class BrowserSession:
    """What a browser's cookie stands for.

    Attributes:
        user: None for the service's own user.
        token_hash: of the user's token when it began: it ends with that.
        began_s: by the clock of `time.monotonic`.
    """

    user: str | None
    token_hash: str | None
    began_s: float


class Access:
    """Whom the service lets in: who knows the token of this start, its users, and browsers that
    one of these has let in.

    Args:
        token: one that is the service's at each start; None makes one of 32 random bytes.
        store: holds the users; None where the service is its own user's alone.
    """

    def __init__(self, token: str | None = None, *, store: Store | None = None) -> None:
        self.token = token or new_token()
        self._token_hash = token_hash(self.token)
        self.store = store
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, BrowserSession] = OrderedDict()
        self._sessions: OrderedDict[str, BrowserSession] = OrderedDict()
        self._failures: OrderedDict[tuple[str, str], deque[float]] = OrderedDict()

    @property
    def is_group(self) -> bool:
        return self.store is not None

    def account(self, name: str) -> Account | None:
        """Return what lets a user of this name in; the empty one is the service's own user's."""
        if not name:
            return Account(
                name="", scope="admin", token_hash=self._token_hash, revoked=False, noted=None
            )
        if self.store is None or not re.match(USER_NAME, name):
            return None
        with self.store.session() as session:
            return account_of(session, name)

    def admitted(self, name: str, *, scope: UserScope | None) -> Account | None:
        """Return what lets in a user whom a proxy names; a new one is added with the scope, None
        for none."""
        found = self.account(name) if name else None
        if found is not None or scope is None or self.store is None:
            return found
        if not re.match(USER_NAME, name):
            return None
        try:
            with self.store.transaction() as session:
                add_user(session, UserCreate(name=name, scope=scope), with_token=False)
        except (Conflict, IntegrityError):
            log.info("user_added_by_another_request", user=name)
        return self.account(name)

    def known(self, token: str) -> Account | None:
        """Return whose a token is; None where it is nobody's."""
        account = self.account(user_of(token))
        kept = account.token_hash if account else None
        return account if kept and hmac.compare_digest(kept, token_hash(token)) else None

    def note_use(self, account: Account) -> None:
        """Write down that a user is here, every ten minutes; where that cannot be, it is not."""
        if self.store is None or not account.name or not account.is_to_be_noted:
            return
        try:
            with self.store.transaction() as session:
                note_use(session, account.name)
        except SQLAlchemyError as error:
            log.warning("use_not_noted", user=account.name, error=str(error))

    def new_key(self, caller: Caller = SERVICE) -> str:
        """Return a key with which one browser may come in, once, as the caller."""
        key, begun = secrets.token_urlsafe(24), self._session_of(caller)
        with self._lock:
            _keep(self._entries, key, begun, most=MOST_KEYS)
        return key

    def session(self, key: str) -> str | None:
        """Return a session's cookie for a key, which is then worth nothing; None for no key."""
        with self._lock:
            begun = self._entries.pop(key, None)
            return None if begun is None else self._begun(begun)

    def sign_in(self, account: Account) -> str:
        """Return the cookie of a new session of a user who has shown the token."""
        begun = self._session_of(caller_for(account), account)
        with self._lock:
            return self._begun(begun)

    def sign_out(self, cookie: str) -> None:
        with self._lock:
            self._sessions.pop(cookie, None)

    def of_session(self, cookie: str) -> Account | None:
        """Return whose session a cookie is of; None where it is of none that lasts still."""
        with self._lock:
            begun = self._sessions.get(cookie)
        if begun is None or time.monotonic() - begun.began_s > SESSION_S:
            return None
        account = self.account(begun.user or "")
        if account is None or begun.token_hash != account.token_hash:
            return None
        return account

    def may_try(self, address: str, token: str) -> bool:
        """Return whether an address may present this token, or another one of its user, on the
        sign-in page."""
        with self._lock:
            tried = self._failures.get(_guessed(address, token))
            while tried and time.monotonic() - tried[0] > FAILURES_S:
                tried.popleft()
            return not tried or len(tried) < MOST_FAILURES

    def note_failure(self, address: str, token: str) -> None:
        with self._lock:
            counted = _guessed(address, token)
            tried = self._failures.setdefault(counted, deque(maxlen=MOST_FAILURES))
            tried.append(time.monotonic())
            self._failures.move_to_end(counted)
            while len(self._failures) > MOST_COUNTED:
                self._failures.popitem(last=False)

    def _session_of(self, caller: Caller, account: Account | None = None) -> BrowserSession:
        account = account or self.account(caller.name or "")
        return BrowserSession(
            user=caller.name,
            token_hash=account.token_hash if account else None,
            began_s=time.monotonic(),
        )

    def _begun(self, begun: BrowserSession) -> str:
        cookie = secrets.token_urlsafe(32)
        _keep(self._sessions, cookie, begun, most=MOST_SESSIONS)
        return cookie


def caller_for(account: Account) -> Caller:
    return Caller(name=account.name or None, scope=account.scope)


def _guessed(address: str, token: str) -> tuple[str, str]:
    """Return from where, and of which user, a wrong token is counted."""
    return address, user_of(token)[:LONGEST_NAME]


def _keep(
    kept: OrderedDict[str, BrowserSession], key: str, begun: BrowserSession, *, most: int
) -> None:
    """Keep what a browser has begun, and of its user's no more than the last `most`."""
    kept[key] = begun
    own = [other for other, each in kept.items() if each.user == begun.user]
    for other in own[:-most]:
        del kept[other]
