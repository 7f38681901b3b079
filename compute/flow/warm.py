"""Compiles the kernels, if they are not in the cache: `python -m foreshore.compute.flow.warm`."""

from functools import cache

from foreshore.compute.flow.compilation import Compilation
from foreshore.compute.flow.kernels import compiled


@cache
def warm() -> None:
    """Compile all kernels, or load them, once in a process."""
    compiled.compile_missing()
    compiled.load_all()


def main() -> None:
    """Compile what is missing, by several processes."""
    compilation = Compilation()
    compilation.begin()
    compilation.finish()
    compiled.compile_missing()  # where a process has failed, this says why


if __name__ == "__main__":
    main()
