"""OpenSSH's own server on the loopback, where it is installed; it lets clients reach other ports."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.harness import free_port, postgres_account, program, until

HOST = "127.0.0.1"
CONFIGURATION = """
Port {port}
ListenAddress {host}
HostKey {folder}/host
AuthorizedKeysFile {folder}/keys
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
AllowTcpForwarding yes
"""


class OpenSsh:
    """A server that may stop and start again; `user` is the account that may log in."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._folder = folder
        # Without an account for sshd it does not run as root, and others let in themselves only.
        self._account = postgres_account(folder)
        self.user = self._account.get("user") or pwd.getpwuid(os.getuid()).pw_name
        self._process: subprocess.Popen[bytes] | None = None
        self.make_host_key()
        self.let_in([])
        text = CONFIGURATION.format(port=self.port, host=HOST, folder=folder)
        (folder / "configuration").write_text(text)

    def make_host_key(self) -> None:
        """Be another server from the next start on."""
        (self._folder / "host").unlink(missing_ok=True)
        subprocess.run(
            [program("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", self._folder / "host"],
            check=True,
            stdin=subprocess.DEVNULL,
            **self._account,
        )

    @property
    def host_key(self) -> str:
        """Return the public key by which it is known."""
        return " ".join((self._folder / "host.pub").read_text().split()[:2])

    def let_in(self, keys: list[str]) -> None:
        """Let in those who have one of these keys, and nobody else."""
        (self._folder / "keys").write_text("".join(f"{each}\n" for each in keys))

    def start(self) -> None:
        """Listen."""
        self._process = subprocess.Popen(
            [_server(), "-D", "-e", "-f", str(self._folder / "configuration")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=(self._folder / "log").open("ab"),
            **self._account,
        )
        until(self._answers, "the SSH server answers", 30)

    def stop(self) -> None:
        """Cut all connections, and listen no longer."""
        if self._process is None:
            return
        parent, self._process = self._process, None
        children = _children(parent.pid)  # one for each connection, in sessions of their own
        parent.kill()
        parent.wait(30)
        for each in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)

    def _answers(self) -> bool:
        try:
            with socket.create_connection((HOST, self.port), 5) as connected:
                return connected.recv(4) == b"SSH-"
        except OSError:
            return False


def _children(pid: int) -> list[int]:
    """Return a process's children, and theirs."""
    found = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [one for each in found for one in (each, *_children(each))]


def _server() -> str:
    """Return the path of sshd, which must be absolute; skips the test where it is not installed."""
    return shutil.which("sshd", path="/usr/sbin:/usr/local/sbin") or program("sshd")


@contextlib.contextmanager
def running_openssh() -> Iterator[OpenSsh]:
    """Yield a server that runs for the length of a block."""
    _server()
    with tempfile.TemporaryDirectory(prefix="foreshore-ssh-") as folder:
        server = OpenSsh(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.stop()
