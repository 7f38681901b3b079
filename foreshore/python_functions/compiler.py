"""The process that compiles sources of Python functions: a script with the standard library alone.

    python -I -S compiler.py BYTES SECONDS

It reads sources and writes what each defines, both as lines of JSON. Compiling may take any time
and memory: Python folds constants, so that 40 kB of text can become 20 GB. The process fails when
it needs more than so many bytes, and is ended by the system when one source takes more than so many
seconds of the processor. No code of a source is run.
"""

import ast
import json
import math
import resource
import sys
import time
from typing import Any

ARRAYS = frozenset(("Array", "ChunkedArray"))
OUT_OF_MEMORY = 77  # the process ends with it
LINE = 200  # characters of a line in a message


def main() -> None:
    """Answer until the input ends."""
    memory, seconds = int(sys.argv[1]), int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    for line in sys.stdin.buffer:
        most = resource.getrlimit(resource.RLIMIT_CPU)[1]
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time()) + seconds, most))
        try:
            answer = json.dumps(examined(json.loads(line), memory))
        except MemoryError:
            sys.exit(OUT_OF_MEMORY)
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()


def examined(source: str, memory: int) -> dict[str, Any]:
    """Return the definitions of a source, or the error of compiling it.

    Raises MemoryError.
    """
    try:
        module = ast.parse(source)
        compile(module, "function", "exec", dont_inherit=True)
        return {"definitions": [_described(each) for each in module.body if _is_definition(each)]}
    except SyntaxError as error:
        return {
            "message": f"{error.msg} in line {error.lineno} of the source",
            "line": (error.text or "").strip()[:LINE],
        }
    except (ValueError, RecursionError) as error:  # NUL, or nested too deeply
        return {"message": f"the source cannot be compiled: {error}", "line": ""}
    except MemoryError:
        # The parser raises it for deep nesting, too.
        if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10 > memory // 4:
            raise
        return {"message": "the source cannot be compiled: it is nested too deeply", "line": ""}


def _is_definition(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)


def _described(definition: Any) -> dict[str, Any]:
    if isinstance(definition, ast.ClassDef):
        methods = [each.name for each in definition.body if isinstance(each, ast.FunctionDef)]
        return {"kind": "class", "name": definition.name, "methods": methods}
    args = definition.args
    most = len(args.posonlyargs) + len(args.args)
    annotations = [*(each.annotation for each in args.args), definition.returns]
    return {
        "kind": "async" if isinstance(definition, ast.AsyncFunctionDef) else "function",
        "name": definition.name,
        "required": most - len(args.defaults),
        "most": None if args.vararg is not None else most,
        "needs_names": any(default is None for default in args.kw_defaults),
        "has_arrays": any(map(_is_array, annotations)),
    }


def _is_array(annotation: ast.expr | None) -> bool:
    match annotation:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name in ARRAYS
        case ast.Constant(value=str() as text):
            return text.rpartition(".")[2] in ARRAYS
        case _:
            return False


if __name__ == "__main__":
    main()
