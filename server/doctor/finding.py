"""What the doctor finds: a line for each thing looked at, with advice where something is wrong."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Literal

State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The state of something, and what to do if that is not ok."""

    name: str
    state: State
    message: str
    advice: str | None = None


Check = Callable[[], Iterable[Finding]]


def ok(name: str, message: str) -> Finding:
    """Return a finding of something that is well."""
    return Finding(name, "ok", message)


def warn(name: str, message: str, advice: str) -> Finding:
    """Return a finding of something that works, but may not for long or not well."""
    return Finding(name, "warn", message, advice)


def fail(name: str, message: str, advice: str) -> Finding:
    """Return a finding of something with which a server does not start or loses data."""
    return Finding(name, "fail", message, advice)


def gigabytes(size: int) -> str:
    """Return a size in bytes for people."""
    return f"{size / (1 << 30):.1f} GiB"


def found(checks: Iterable[tuple[str, Check]]) -> list[Finding]:
    """Return what the checks find; one that fails itself is a warning, and the others go on."""
    findings: list[Finding] = []
    for name, check in checks:
        try:
            findings += check()
        except Exception as error:  # the doctor is for machines on which something is wrong
            message = f"could not be looked at: {error or type(error).__name__}"
            findings.append(warn(name, message, "Look at it by hand."))
    return findings


def as_text(findings: Iterable[Finding]) -> list[str]:
    """Return the lines for people."""
    lines = []
    for each in findings:
        lines.append(f"{each.state:<4}  {each.name}: {each.message}")
        if each.advice is not None:
            lines.append(f"      {each.advice}")
    return lines


def as_json(findings: Iterable[Finding]) -> list[dict[str, str | None]]:
    """Return the findings as JSON values."""
    return [asdict(each) for each in findings]
