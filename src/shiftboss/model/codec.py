"""Encryption of payloads: sealed before they leave this process, opened when they are read.

JSON is sealed as {"$enc": "KEY:DATA"} and text as "$enc:KEY:DATA", where KEY names the key and DATA is the
nonce and the AES-256-GCM ciphertext in base64. Both are valid values of their columns, so plain SQL still
works. Values that were stored before encryption was enabled are returned unchanged.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import orjson

from shiftboss.model.errors import ConfigError, ShiftbossError

if TYPE_CHECKING:
    from shiftboss.model.settings import Settings

MARK = "$enc"
MARK_BYTES = b"$enc"
#: Shown in place of a value that this process cannot open.
SHOWN = "(encrypted)"
KEY_BYTES, NONCE_BYTES = 32, 12

_DATA = r"[0-9a-f]{8}:[A-Za-z0-9+/]+={0,2}"
_NAME = r"[A-Za-z_][A-Za-z0-9_.]{0,199}: ?"
_FRAME = r'File "[^"\n]+", line \d+, in [^\n]+'
_IN_TEXT = re.compile(rf'\{{"\$enc": ?"(?P<json>{_DATA})"\}}|…?\$enc:(?P<text>{_DATA})(?:\n  {_FRAME})?')
_CUT_OFF = re.compile(r'\{"\$enc": ?"[^"]*"?\}?|…?\$enc:[0-9a-f:]*[A-Za-z0-9+/]*={0,2}(?:\n  File [^\n]*)?')
_SEALED_JSON = re.compile(rf'\{{"\$enc": ?"{_DATA}"\}}'.encode())
_SEALED_TEXT = re.compile(rf"\$enc:{_DATA}")
_TRACE = rf"\n\n…\$enc:{_DATA}(?:\n  {_FRAME})?"
_SEALED_ERROR = re.compile(rf"(?:{_NAME})?(?:\$enc:{_DATA}(?:{_TRACE})?|{_TRACE})")
_HMAC = re.compile(r"hmac:[0-9a-f]{40}")


_current: Codec | None = None


class KeyMissing(ShiftbossError):
    """A value is encrypted with a key that this process does not have."""

    def __init__(self, what: str, name: str) -> None:
        hint = "add the key to encryption.keys; `shiftboss encryption status` lists the keys in use"
        super().__init__(f"{what} is encrypted with key {name}, which this process does not have", hint=hint)


class Sealed(dict[str, Any]):
    """A JSON value that this process has no key for. It serializes to the same sealed JSON."""

    @property
    def key(self) -> str:
        return str(self[MARK])[:8]


class Codec:
    """Seals with the first key and opens with all keys. Without keys, values stay as they are."""

    def __init__(self, keys: Iterable[str] = (), hmac_key: str | None = None) -> None:
        material = [_decoded(key) for key in keys]
        self._ciphers = {_name(one): _cipher(one) for one in material}
        self.names = list(self._ciphers)
        """The names of the keys. The first one seals."""
        self._seal = (self.names[0] + ":", self._ciphers[self.names[0]]) if material else None
        # The oldest key by default, so that adding a key does not change existing dedup keys.
        secret = _decoded(hmac_key) if hmac_key else material[-1] if material else b""
        self._hmac_key = _derived(secret, b"shiftboss dedup keys")

    def __bool__(self) -> bool:
        return self._seal is not None

    def json(self, text: bytes) -> bytes:
        """Seal encoded JSON, unless it is sealed already."""
        if self._seal is None or (text.startswith(b'{"$enc":') and _SEALED_JSON.fullmatch(text)):
            return text
        return b'{"$enc":"' + self._encrypted(text, b"json").encode() + b'"}'

    def value(self, value: Any, *, repeatable: bool = False) -> Any:
        """Seal a JSON value. `repeatable` gives equal values the same ciphertext: SQL can compare them."""
        if self._seal is None or sealed_whole(value):
            return value
        if not repeatable:
            return {MARK: self._encrypted(orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS), b"json")}
        plain = orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SORT_KEYS)
        nonce = hmac.digest(self._hmac_key, plain, "sha256")[:NONCE_BYTES]
        return {MARK: self._encrypted(plain, b"json", nonce)}

    def text(self, text: str | None) -> str | None:
        """Seal a text as a whole."""
        if self._seal is None or not text or _SEALED_TEXT.fullmatch(text):
            return text
        return f"{MARK}:{self._encrypted(text.encode(errors='backslashreplace'), b'text')}"

    def error(self, text: str | None) -> str | None:
        """Seal an error, except the exception's name and the innermost frame, which group errors."""
        if self._seal is None or not text or _SEALED_ERROR.fullmatch(text):
            return text
        head, _, trace = text.partition("\n\n")
        if not trace:
            return self.text(text)
        name = re.match(_NAME, head)
        start = name.end() if name else 0
        frames = re.findall(_FRAME, trace)
        place = f"\n  {frames[-1]}" if frames else ""
        return f"{head[:start]}{self.text(head[start:])}\n\n…{self.text(trace)}{place}"

    def dedup_key(self, key: str) -> str:
        """Return an HMAC of the key: equal for equal keys, and it does not reveal them."""
        if self._seal is None or _HMAC.fullmatch(key):
            return key
        return f"hmac:{self.fingerprint(key.encode(errors='replace'))[:40]}"

    def fingerprint(self, data: bytes) -> str:
        """Return a hash of the data. With a key, only its holders can check a guess of the data."""
        if self._seal is None:
            return hashlib.sha256(data).hexdigest()
        return hmac.digest(self._hmac_key, data, "sha256").hex()

    def open(self, value: Any) -> Any:
        """Open all sealed parts of a JSON value that there are keys for; the others become `Sealed`.

        A sealed object can have siblings: the results of parents are added to sealed params.
        """
        if isinstance(value, str):
            return self.open_text(value) if MARK in value else value
        if isinstance(value, list):
            return [self.open(one) for one in value]
        if not isinstance(value, dict):
            return value
        token = value.get(MARK)
        plain = self._decrypted(token, b"json") if isinstance(token, str) else None
        if plain is None:
            if isinstance(token, str) and re.fullmatch(_DATA, token):
                return Sealed(value)
            return {name: self.open(one) for name, one in value.items()}
        inner = orjson.loads(plain)
        if len(value) == 1 or not isinstance(inner, dict):
            return inner
        return inner | {name: self.open(one) for name, one in value.items() if name != MARK}

    def open_text(self, text: str) -> str:
        """Open all sealed parts of a text that there are keys for."""
        return _IN_TEXT.sub(self._opened, text) if MARK in text else text

    def _opened(self, match: re.Match[str]) -> str:
        token, kind = (match["json"], b"json") if match["json"] else (match["text"], b"text")
        plain = self._decrypted(token, kind)
        return match[0] if plain is None else plain.decode()

    def _encrypted(self, plain: bytes, kind: bytes, nonce: bytes | None = None) -> str:
        assert self._seal is not None
        name, cipher = self._seal
        nonce = nonce or os.urandom(NONCE_BYTES)
        data = nonce + cipher.encrypt(nonce, plain, kind)
        return name + b2a_base64(data, newline=False).decode()

    def _decrypted(self, token: str, kind: bytes) -> bytes | None:
        """Return None if there is no such key, or the text was truncated or changed."""
        cipher = self._ciphers.get(token[:8])
        if cipher is None:
            return None
        try:
            data = a2b_base64(token[9:])
            plain: bytes = cipher.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], kind)
        except Exception:  # not base64 (binascii), or changed (cryptography)
            return None
        return plain


def sealed_whole(value: Any) -> bool:
    """Whether a JSON value is sealed and has no siblings."""
    token = value.get(MARK) if isinstance(value, dict) and len(value) == 1 else None
    return isinstance(token, str) and re.fullmatch(_DATA, token) is not None


def is_sealed(text: str) -> bool:
    """Whether a text, or a JSON text, is sealed as a whole."""
    return bool(_SEALED_TEXT.fullmatch(text) or _SEALED_JSON.fullmatch(text.encode()))


def missing_key(value: Any) -> str | None:
    """Return the name of a key that this JSON value needs, or None if nothing in it is sealed."""
    if isinstance(value, Sealed):
        return value.key
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((name for one in inner if (name := missing_key(one))), None)


def shown(value: Any) -> Any:
    """Return a value for display, with `(encrypted)` in place of parts that could not be opened."""
    if isinstance(value, Sealed):
        return SHOWN
    if isinstance(value, str):
        return _CUT_OFF.sub(SHOWN, value) if MARK in value else value
    if isinstance(value, dict):
        return {name: shown(one) for name, one in value.items()}
    return [shown(one) for one in value] if isinstance(value, list) else value


def current() -> Codec:
    """Return the codec of this process."""
    return _current if _current is not None else use(None)


def use(settings: Settings | None) -> Codec:
    """Use the keys of these settings in this process; without settings, load them first."""
    from shiftboss.model.settings import Settings

    global _current
    chosen = (settings or Settings.load()).encryption
    _current = Codec(chosen.keys, chosen.hmac_key)
    return _current


def new_key() -> str:
    """Return a new key for `encryption.keys`."""
    return b2a_base64(os.urandom(KEY_BYTES), newline=False).decode()


def _decoded(key: str) -> bytes:
    try:
        material = a2b_base64(key.strip().replace("-", "+").replace("_", "/"))
    except ValueError:
        material = b""
    if len(material) != KEY_BYTES:
        raise ConfigError(
            f"an encryption key must be {KEY_BYTES} bytes in base64",
            hint="`shiftboss encryption new-key` makes one",
        )
    return material


def _name(material: bytes) -> str:
    return _derived(material, b"shiftboss key name").hex()[:8]


def _derived(material: bytes, purpose: bytes) -> bytes:
    """Derive a secret for one purpose, which does not reveal the key."""
    return hmac.new(material, purpose, hashlib.sha256).digest()


def _cipher(material: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise ConfigError(
            "encryption.keys is set, but the package cryptography is not installed",
            hint="pip install 'shiftboss[encryption]'",
        ) from None
    return AESGCM(_derived(material, b"shiftboss encryption"))
