"""A cluster's size selects its engine."""

import pytest

from foreshore.compute.controller.cluster import check_size
from foreshore.errors import InvalidParameterValue


@pytest.mark.parametrize(
    "master",
    [
        "local",
        "local[2]",
        "local[*]",
        "local[*, 3]",
        "local-cluster[2, 1, 1024]",
        "spark://one:7077,two:7077",
        "k8s://https://host:443",
        "yarn",
    ],
)
def test_valid_spark_masters_are_accepted(master: str) -> None:
    check_size(f"spark:{master}")


@pytest.mark.parametrize("master", ["local[abc]", "local[0]", "local[]", "spark://", "there"])
def test_invalid_spark_master_is_refused(master: str) -> None:
    with pytest.raises(InvalidParameterValue, match="invalid Spark master"):
        check_size(f"spark:{master}")


def test_cluster_size_without_master_is_unchanged() -> None:
    for size in ("embedded", "spark"):
        check_size(size)
    with pytest.raises(InvalidParameterValue, match="unknown cluster replica size"):
        check_size("enormous")
