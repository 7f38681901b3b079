"""The values of secrets: sealed in the catalog, and readable only by parts of this process.

    secrets.read(id)        the value; for connections, never for a statement's result

The key is in a file of the server and nowhere in the database.
"""

from collections.abc import Callable

from foreshore.catalog.item import Object, Secret
from foreshore.catalog.state import State
from foreshore.errors import ObjectNotInPrerequisiteState
from foreshore.secret_box import SecretBox, WrongKey


class Secrets:
    """Seals and reads the values of the secrets of one environment."""

    def __init__(self, state: Callable[[], State]) -> None:
        self._state = state
        self._box: SecretBox | None = None

    def unlock(self, key: bytes) -> None:
        """Use a key of 32 bytes from now on."""
        self._box = SecretBox(key)

    def sealed(self, id: str, value: bytes) -> str:
        """Return the value of the secret `id` as the catalog keeps it."""
        return self._unlocked().seal(value, id)

    def read(self, id: str) -> bytes:
        """Return the value of the secret `id`; fails if it was sealed with another key."""
        return self.value(self._state().get(id))

    def value(self, secret: Object | None) -> bytes:
        """Return the value of a secret, which need not be in the catalog; fails as `read` does."""
        assert isinstance(secret, Secret), secret
        return self.opened(secret.id, secret.sealed, f'secret "{secret.name}"')

    def opened(self, id: str, sealed: str, name: str) -> bytes:
        """Return what was sealed for the object `id`; fails if that was with another key."""
        try:
            return self._unlocked().open(sealed, id)
        except WrongKey:
            raise ObjectNotInPrerequisiteState(
                f"{name} cannot be read with the key of this server",
                hint="Start the server with the key file that it was created with, or give it"
                " a value again.",
            ) from None

    def _unlocked(self) -> SecretBox:
        if self._box is None:
            raise ObjectNotInPrerequisiteState("secrets need a key file")
        return self._box
