"""What child processes get of this process's environment: what they need, and no identity.

    Popen(command, env=child_environment(home, COMPUTE, NAME="value"))

The operator's environment may have passwords, keys of clouds and files in the home directory
(PGPASSWORD, ~/.pgpass, ~/.aws, ~/.ssh). A child connects to hosts that users name and runs code of
users, so it gets variables by name only, and a home that is empty and stays so.
"""

import atexit
import os
import site
from collections.abc import Iterable, Mapping
from pathlib import Path

from foreshore.once_per_process import once_per_process
from foreshore.processes.scratch import Scratch

# Names of variables; a star at the end stands for any rest.
Names = tuple[str, ...]

BASE: Names = (
    *("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "DYLD_*", "PYTHON*", "VIRTUAL_ENV"),
    *("LANG", "LANGUAGE", "LC_*", "TZ", "TZDIR", "TMPDIR", "TEMP", "TMP"),
    *("MALLOC_*", "MIMALLOC_*", "ARROW_*", "OMP_*", "OPENBLAS_*", "MKL_*", "NUMBA_*"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "COVERAGE_*", "COV_CORE_*", "XDG_CACHE_HOME"),
    # Of our own: how processes log, what they may run, and what tests ask of them.
    *("FORESHORE_LOG_FORMAT", "FORESHORE_LOG_LEVEL", "FORESHORE_PYTHON_FUNCTION*"),
    *("FORESHORE_FAIL_POINT", "FORESHORE_UNCOMPILED", "FORESHORE_SECOND_OPINION"),
    *("FORESHORE_TEST_MARK", "FORESHORE_CONNECTOR_MEMORY", "FORESHORE_REPLICA_MEMORY"),
    "FORESHORE_PASS_ENVIRONMENT",
)
# Of processes that run dataflows or Spark.
COMPUTE: Names = (
    *("JAVA_*", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_*", "PYSPARK_*", "HADOOP_*", "YARN_*"),
    "KUBERNETES_SERVICE_*",
)
# Of processes that reach other hosts: the way there.
NETWORK: Names = (
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE"),
)
# Of processes that read or write buckets that the operator names: the server's own identity.
AWS: Names = ("AWS_*",)
_AWS_FILES = {
    "AWS_SHARED_CREDENTIALS_FILE": ".aws/credentials",
    "AWS_CONFIG_FILE": ".aws/config",
}

# The names of further variables, separated by blanks, that the operator has processes get.
PASSED_VARIABLE = "FORESHORE_PASS_ENVIRONMENT"
_MARK = "FORESHORE_HOME_IS_PRIVATE"  # in the environment of a process with such a home


def child_environment(home: Path, *names: Names, **given: str) -> dict[str, str]:
    """Return the environment of a child process: `given` variables, and those with some names.

    `home` is a directory for the child alone, made if it is not there.
    """
    home.mkdir(mode=0o500, exist_ok=True)
    further: Names = ()
    if COMPUTE in names or NETWORK in names:  # not those that run code of users alone
        further = tuple(os.environ.get(PASSED_VARIABLE, "").split())
    passed = _passed(os.environ, (BASE, *names, further))
    if site.ENABLE_USER_SITE:  # else packages there would not be found
        passed.setdefault("PYTHONUSERBASE", site.getuserbase())
    if COMPUTE in names:  # compiled kernels and archives of classes
        passed.setdefault("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    if AWS in names:
        for name, file in _AWS_FILES.items():
            if (path := Path.home() / file).is_file():
                passed.setdefault(name, str(path))
    return {**passed, "HOME": str(home), _MARK: "1", **given}


def private_home() -> Path:
    """Return an empty home for children of this process that have no directory of their own."""
    if os.environ.get(_MARK) == "1":
        return Path(os.environ["HOME"])
    return _scratch_of().path / "home"


def remove_private_home() -> None:
    """Remove the directory of `private_home`, when no child of this process is left."""
    if not _scratch_of.is_empty():
        _scratch_of().remove()
        _scratch_of.forget()


@once_per_process()
def _scratch_of() -> Scratch:
    """Return the directory of this process, of its own also after a fork."""
    scratch = Scratch()
    atexit.register(remove_private_home)
    return scratch


def _passed(variables: Mapping[str, str], groups: Iterable[Names]) -> dict[str, str]:
    names = [name for group in groups for name in group]
    exact = frozenset(names)
    starts = tuple(name.removesuffix("*") for name in names if name.endswith("*"))
    return {
        name: value for name, value in variables.items() if name in exact or name.startswith(starts)
    }
