"""Times about changes of the clocks, and what they are in a zone by Python's `zoneinfo`."""

from datetime import UTC, datetime, timedelta, tzinfo

from hypothesis import strategies as st

EPOCH = datetime(1970, 1, 1)
ZONES = [
    "America/New_York",
    "Europe/Berlin",
    "Europe/Dublin",  # whose winter is what it calls daylight saving
    "Asia/Kolkata",
    "Australia/Lord_Howe",  # half an hour of summer time
    "Africa/Casablanca",  # four changes in some years
    "Pacific/Apia",  # left out a day
    "CET",
]
# Within a few hours of changes of the clocks in the zones above, and far from any.
CHANGES = [
    *(datetime(2013, 3, 10, 7), datetime(2013, 11, 3, 6)),
    *(datetime(2013, 3, 31, 1), datetime(2013, 10, 27, 1)),
    *(datetime(2013, 4, 6, 15), datetime(2013, 10, 5, 15, 30)),
    *(datetime(2012, 7, 20, 2), datetime(2012, 8, 20, 2)),
    *(datetime(2011, 12, 30, 10), datetime(1883, 11, 18, 17), datetime(1893, 3, 31, 23)),
    *(datetime(1900, 1, 1), datetime(2100, 7, 1), datetime(1970, 1, 1), datetime(2400, 3, 12, 7)),
]
moments = st.builds(
    lambda at, minutes, micros: at + timedelta(minutes=minutes, microseconds=micros),
    st.sampled_from(CHANGES),
    st.integers(-1600, 1600),
    st.sampled_from([0, 0, 1, -1, 500_000]),
)
zones = st.sampled_from(ZONES)


def micros_of(at: datetime) -> int:
    return (at - EPOCH) // timedelta(microseconds=1)


def local_of(zone: tzinfo, at: datetime) -> datetime:
    return at.replace(tzinfo=UTC).astimezone(zone).replace(tzinfo=None)


def moment_of(zone: tzinfo, local: datetime) -> datetime:
    """Return the moment of a local time, by PostgreSQL's rule.

    A time in a gap is read by the offset before it, one that there is twice is the later moment.
    """
    candidates = {
        (local.replace(tzinfo=zone, fold=fold)).astimezone(UTC).replace(tzinfo=None)
        for fold in (0, 1)
    }
    real = {at for at in candidates if local_of(zone, at) == local}
    return max(real or candidates)
