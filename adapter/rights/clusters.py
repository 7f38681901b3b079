"""The rules of statements about clusters: who makes them, and who says where they work."""

import re
from collections.abc import Mapping

from foreshore.adapter.rights.checker import Checker
from foreshore.burst import Burst
from foreshore.errors import InsufficientPrivilege
from foreshore.sql import plan as plans


def create_cluster(check: Checker, plan: plans.CreateCluster) -> None:
    """Require the attribute, and that it works here."""
    if not check.role.create_cluster:
        raise InsufficientPrivilege("permission denied to create cluster")
    sizes = [plan.size, *(size for _, size in plan.replicas or ())]
    _here(sizes, plan.options, plan.burst)


def alter_cluster(check: Checker, plan: plans.AlterCluster) -> None:
    """Require the owner, and that it works here."""
    check.own(check.found("cluster", plan.name))
    _here([plan.size or ""], plan.options, None if plan.burst == "keep" else plan.burst)


def replica(check: Checker, plan: plans.CreateClusterReplica) -> None:
    """Require the owner of the cluster, and that it works here."""
    check.own(check.state.cluster(plan.cluster))
    if "address" in plan.options:
        raise InsufficientPrivilege("must be superuser to create a replica at an address")
    _here([plan.size or ""], plan.options, None)


def _here(sizes: list[str], options: Mapping[str, str | None], burst: Burst | None) -> None:
    """Raise unless replicas work on this machine, or where its operator has said.

    `spark:MASTER` is a size, too. What a master is sent are queries and rows.
    """
    masters = [size.partition(":")[2] for size in (*sizes, burst.size if burst else "")]
    for each in (*masters, options.get("master") or ""):
        if each and re.match(r"\s*local(?![^\[\s-])", each) is None:
            raise InsufficientPrivilege("must be superuser to use a remote Spark master")


def set_cluster(check: Checker, plan: plans.SetCluster) -> None:
    """Require the owner of the view, and CREATE on the cluster."""
    check.own(check.found("materialized view", plan.name))
    check.create_on_cluster(plan.cluster)
