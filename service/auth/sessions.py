"""Console sessions: a key is exchanged for a token that a browser keeps in a cookie.

A token is `<key id>.<expiry>.<signature>`. The signature covers the hash of the secret that opened the
session, so the session ends with that secret: when the key is revoked, expires or is rotated.
"""

import hashlib
import hmac
import time
from collections.abc import Callable

from service.auth.key_ring import KeyRing
from service.auth.keys import Caller, digest, parsed
from service.errors import KeyRefused

COOKIE = "daband_session"
SESSION_SECONDS = 8 * 3600


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
        expires_at = f"{self._clock() + SESSION_SECONDS:.0f}"
        return f"{key_id}.{expires_at}.{self._signature(key_id, expires_at, digest(secret))}"

    def caller(self, token: str) -> Caller:
        """The caller of a session; raises `KeyRefused` or `RateLimited`."""
        key_id, _, rest = token.partition(".")
        expires_at, _, signature = rest.partition(".")
        is_current = expires_at.isdigit() and self._clock() < int(expires_at[:15])
        if not is_current:
            raise KeyRefused

        def is_signed_for(sha256: str) -> bool:
            expected = self._signature(key_id, expires_at, sha256)
            return hmac.compare_digest(expected.encode(), signature.encode())

        return self._keys.caller_of(key_id, is_signed_for)

    def _signature(self, key_id: str, expires_at: str, sha256: str) -> str:
        text = f"console session {key_id} {expires_at} {sha256}"
        return hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()
