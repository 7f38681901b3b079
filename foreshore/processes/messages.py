"""The base of all messages between two Foreshore processes, and the first one of a connection."""

import msgspec


class Message(msgspec.Struct, frozen=True, tag=True, tag_field="message"):
    """A command or a response."""


class Hello(Message, frozen=True):
    """The first message after the handshake."""

    replica: str  # the receiver's name
