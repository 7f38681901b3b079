"""The files of docker/ name what is there: paths, options, metrics' port, extras, statements."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from foreshore.server.http.probes import Probes
from foreshore.server.main import main
from foreshore.sql.parse.parse import parse

ROOT = Path(__file__).parent.parent.parent
DOCKER = ROOT / "docker"
DOCKERFILE = (DOCKER / "Dockerfile").read_text()


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    return found


def test_services_have_an_image_or_are_built(compose: dict[str, Any]) -> None:
    assert compose["services"].keys() >= {"foreshore", "postgres", "kafka", "prometheus", "grafana"}
    for name, service in compose["services"].items():
        assert ("image" in service) != ("build" in service), name
        assert re.search(r":v?\d", service.get("image", ":1")), f"{name} is of any version"
        for address in service.get("ports", ()):
            assert address.startswith("127.0.0.1:"), f"{name} is open to the network"
        for other in service.get("depends_on", ()):
            assert other in compose["services"]


def test_mounted_files_are_there_and_volumes_declared(compose: dict[str, Any]) -> None:
    used = set()
    for service in compose["services"].values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (DOCKER / source).exists(), source
            else:
                used.add(source)
    assert used == compose["volumes"].keys()
    build = compose["services"]["foreshore"]["build"]
    assert (DOCKER / build["context"] / build["dockerfile"]).samefile(DOCKER / "Dockerfile")


def test_dockerfile_copies_what_is_there_and_all_packages() -> None:
    copied = [
        line.split()[1:-1] for line in DOCKERFILE.splitlines() if re.match(r"COPY (?!--)", line)
    ]
    names = {name for each in copied for name in each}
    assert all((ROOT / name).exists() for name in names)
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert {"foreshore", *packages["package-dir"].values()} <= names


def test_dockerfile_installs_extras_that_exist() -> None:
    (extras,) = re.findall(r"'\.\[([\w,]+)\]'", DOCKERFILE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras.split(",")) == project["optional-dependencies"].keys() - {"dev"}


def test_environment_of_the_image_are_options() -> None:
    serve = main.commands["serve"]
    known = {parameter.envvar for parameter in serve.params} | {"FORESHORE_PASSWORD"}
    assert set(re.findall(r"FORESHORE_\w+(?==)", DOCKERFILE)) <= known


def test_health_is_asked_of_a_path_that_is_served() -> None:
    (path,) = re.findall(r"127\.0\.0\.1:6876(/\w+)", DOCKERFILE)
    assert path in {route.path for route in Probes(lambda: True, lambda: None).routes()}


def test_prometheus_scrapes_the_server(compose: dict[str, Any]) -> None:
    (job,) = yaml.safe_load((DOCKER / "prometheus.yml").read_text())["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["foreshore:6876"]}]
    assert "127.0.0.1:6876:6876" in compose["services"]["foreshore"]["ports"]


def test_grafana_finds_its_data_and_dashboard(compose: dict[str, Any]) -> None:
    provisioning = DOCKER / "grafana" / "provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yaml").read_text())[
        "datasources"
    ]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((provisioning / "dashboards/foreshore.yaml").read_text())[
        "providers"
    ]
    mounts = [each.split(":") for each in compose["services"]["grafana"]["volumes"]]
    (dashboards,) = (here for here, there, _ in mounts if there == provider["options"]["path"])
    assert [
        json.loads(file.read_text())["title"] for file in (DOCKER / dashboards).glob("*.json")
    ] == ["Foreshore"]


def test_sources_name_the_services(compose: dict[str, Any]) -> None:
    statements = (DOCKER / "sources" / "foreshore.sql").read_text()
    assert len(parse(statements)) == 6
    assert re.findall(r"HOST '(\w+)'", statements) == ["postgres"]
    assert re.findall(r"BROKER '(\w+):9092'", statements) == ["kafka"]
    assert "PUBLICATION 'shop'" in statements
    assert "CREATE PUBLICATION shop " in (DOCKER / "sources" / "postgres.sql").read_text()
    topic = re.findall(r"TOPIC '(\w+)'", statements)
    assert f"--topic={topic[0]}" in compose["services"]["topics"]["command"]
