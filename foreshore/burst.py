"""Bursts: an extra replica of a cluster while its own replicas hydrate."""

import msgspec

DEFAULT_LINGER_MS = 60_000


class Burst(msgspec.Struct, frozen=True):
    """AUTO SCALING STRATEGY = (ON HYDRATION (...)) of a cluster.

    The extra replica has the `size`, which may be another one than the cluster's, and ends when the
    cluster's own replicas have been ready for `linger_ms`.
    """

    size: str
    linger_ms: int = DEFAULT_LINGER_MS
