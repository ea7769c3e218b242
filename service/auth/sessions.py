"""Console sessions: a key is exchanged for a token that a browser keeps in a cookie.

A token is `<key id>.<expiry>.<nonce>.<signature>`. The signature covers the hash of the secret that opened
the session, so the session ends with that secret: when the key is revoked, expires or is rotated. The nonce
tells apart sessions of one key, so that each can be ended by itself.
"""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from service.auth.key_ring import KeyRing
from service.auth.keys import Caller, digest, parsed
from service.errors import KeyRefused

COOKIE = "daband_session"
SESSION_SECONDS = 8 * 3600
NONCE_BYTES = 8


class _Token(NamedTuple):
    """The pieces of a token; those of a malformed one do not fit its signature."""

    key_id: str
    expires_at: str
    nonce: str
    signature: str

    @classmethod
    def of(cls, text: str) -> "_Token":
        pieces = text.split(".")
        return cls(*pieces) if len(pieces) == len(cls._fields) else cls("", "", "", "")

    @property
    def moment(self) -> int:
        """When it expires, in seconds since 1970; 0 if that is no number."""
        return int(self.expires_at[:15]) if self.expires_at.isdecimal() else 0


class Sessions:
    """Begins and checks sessions; processes with the same `secret` accept each other's."""

    def __init__(self, keys: KeyRing, secret: str, clock: Callable[[], float] = time.time) -> None:
        self._keys = keys
        self._secret = secret.encode()
        self._clock = clock

    def begin(self, key: str) -> str:
        """The token of a new session; raises as `KeyRing.caller` does."""
        self._keys.caller(key)
        key_id, secret = parsed(key) or ("", "")
        token = _Token(
            key_id, f"{self._clock() + SESSION_SECONDS:.0f}", secrets.token_hex(NONCE_BYTES), ""
        )
        return ".".join(token._replace(signature=self._signature(token, digest(secret))))

    def caller(self, token: str) -> Caller:
        """The caller of a session; raises `KeyRefused` or `RateLimited`."""
        found = _Token.of(token)
        if self._clock() >= found.moment:
            raise KeyRefused
        return self._keys.caller_of(found.key_id, self._is_signed(found))

    def end_of(self, token: str) -> datetime | None:
        """When a session would end by itself; None if there is no such session."""
        found = _Token.of(token)
        if self._clock() >= found.moment:
            return None
        is_known = self._keys.recognises(found.key_id, self._is_signed(found))
        return datetime.fromtimestamp(found.moment, UTC) if is_known else None

    def _is_signed(self, token: _Token) -> Callable[[str], bool]:
        """Whether the secret with a hash signed this token."""

        def is_signed_for(sha256: str) -> bool:
            expected = self._signature(token, sha256)
            return hmac.compare_digest(expected.encode(), token.signature.encode())

        return is_signed_for

    def _signature(self, token: _Token, sha256: str) -> str:
        text = f"console session {token.key_id} {token.expires_at} {token.nonce} {sha256}"
        return hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()
