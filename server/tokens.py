"""Bearer tokens: 32 random bytes each, of which the database keeps a hash."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets

OF_USER = re.compile(r"(.+)\.[A-Za-z0-9_-]{43}")


def new_token(user: str = "") -> str:
    """Return a token of 32 random bytes, in letters; that of a user begins with the name."""
    secret = secrets.token_urlsafe(32)
    return f"{user}.{secret}" if user else secret


def user_of(token: str) -> str:
    """Return whose token it is; empty for that of the service's own user."""
    found = OF_USER.fullmatch(token)
    return found[1] if found else ""


def token_hash(token: str) -> str:
    """Return what the database keeps of a token, in 64 hexadecimal digits.

    A token needs neither salt nor iterations: it has 256 random bits. SHA-256 is taken of an HMAC
    of the token, and not of the token itself, because earlier versions kept that: their tokens
    still work.
    """
    keyed = hmac.digest(token.encode(), b"Client Key", hashlib.sha256)
    return hashlib.sha256(keyed).hexdigest()
