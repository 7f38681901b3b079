"""COPY: the sub-protocol."""

from foreshore.adapter.client import CopyIn, CopyOut
from foreshore.errors import FeatureNotSupported


async def copy_out(wire: object, copy: CopyOut, zone: str) -> str:
    raise FeatureNotSupported("COPY is not supported yet")


async def copy_in(wire: object, copy: CopyIn, zone: str) -> str:
    raise FeatureNotSupported("COPY is not supported yet")
