"""Access tokens: random secrets by which programs prove to be a role, in place of a password.

    fst_o7_3_dGhpcyBpcyBub3Qg...      the role's id, the token's number, and its secret

Only a digest of the secret is kept. It has 256 random bits, so nobody finds it by guessing, and a
plain hash is as good as a slow one.
"""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass

PREFIX = "fst_"
_BYTES = 32
_TOKEN = re.compile(r"fst_([a-z][0-9]{1,18})_([0-9]{1,9})_([A-Za-z0-9_-]{43})")


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token as its holder has it. It is shown nowhere but to who creates it."""

    role: str  # the role's id
    number: int  # among the role's tokens
    secret: str

    def __repr__(self) -> str:
        return f"AccessToken({self.role}, {self.number})"

    def text(self) -> str:
        """Return the token as it is sent."""
        return f"{PREFIX}{self.role}_{self.number}_{self.secret}"

    def digest(self) -> str:
        """Return what is kept of it."""
        return hashlib.sha256(self.text().encode()).hexdigest()

    def fits(self, digest: str | None) -> bool:
        """Return whether it is the one with this digest, in the same time for all; None is none."""
        return hmac.compare_digest(self.digest(), digest or "") and digest is not None


def new_token(role: str, number: int) -> AccessToken:
    """Return a new token of a role."""
    return AccessToken(role, number, secrets.token_urlsafe(_BYTES))


def parsed(text: str) -> AccessToken | None:
    """Return the token in a text; None if it has not the form of one."""
    found = _TOKEN.fullmatch(text)
    return None if found is None else AccessToken(found[1], int(found[2]), found[3])
