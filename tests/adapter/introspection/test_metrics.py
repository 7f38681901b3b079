"""The metrics of an environment; docs/metrics.md lists what is served, and the dashboard asks it."""

import json
import re
from pathlib import Path

import pytest
import yaml
from prometheus_client import REGISTRY, Metric

import foreshore.server.main  # noqa: F401 - which registers the metrics of all layers
from foreshore.adapter.metrics.families import DECLARED
from foreshore.adapter.metrics.scrape import EnvironmentMetrics
from foreshore.catalog.builtin.registry import builtins_by_name
from foreshore.latencies import BOUNDS, Latencies, kind_of
from tests.adapter.harness import TestEnvironment, in_environment, until

ROOT = Path(__file__).parent.parent.parent.parent
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| ([^|]*) \|", re.MULTILINE)
RULES = ROOT / "docker" / "prometheus-rules.yml"
DASHBOARD = ROOT / "docker" / "grafana" / "dashboards" / "foreshore.json"


def declared() -> dict[str, tuple[str, str]]:
    """Return kind and labels of all metrics that a server has, by name."""
    found: dict[str, tuple[str, str]] = {
        each.name: (each.kind, ", ".join(each.labels)) for each in DECLARED
    }
    for metric in REGISTRY.collect():
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        found[name] = (metric.type, "")
    for collector, names in REGISTRY._collector_to_names.items():
        for name in set(names) & found.keys():
            found[name] = (found[name][0], ", ".join(getattr(collector, "_labelnames", ())))
    return found


def test_page_lists_exactly_what_is_served() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    listed = {
        name: (kind, labels.replace("`", "").strip()) for name, kind, labels in ROW.findall(page)
    }
    ours = {name: what for name, what in declared().items() if name.startswith("foreshore_")}
    assert {name: what for name, what in listed.items() if name.startswith("foreshore_")} == ours
    assert {name for name in listed if not name.startswith("foreshore_")} == {
        name for name in declared() if not name.startswith("foreshore_")
    }


def test_names_follow_prometheus() -> None:
    for name, (kind, _) in declared().items():
        assert (kind == "counter") == name.endswith("_total"), name
        if kind == "histogram":
            assert name.endswith("_seconds"), name


def served() -> set[str]:
    """Return the names of all series that a server has."""
    found = set()
    for name, (kind, _) in declared().items():
        parts = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        found |= {f"{name}{part}" for part in parts}
    return found


def test_dashboard_asks_for_what_is_served() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    expressions = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    asked = re.findall(r"\b(?:foreshore|process|python)_\w+", " ".join(expressions))
    assert len(expressions) > 10
    assert set(asked) <= served()


def test_rules_ask_for_metrics_and_labels_that_are_served() -> None:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    known = served()
    labels = {name: set(each.split(", ")) for name, (_, each) in declared().items()}
    for rule in group["rules"]:
        asked = set(re.findall(r"\b(?:foreshore|process|python)_\w+", rule["expr"]))
        assert asked <= known, rule["alert"]
        assert asked or rule["expr"].startswith("up{"), rule["alert"]
        assert rule["labels"]["severity"] in ("page", "ticket")
        texts = rule["annotations"]
        assert texts.keys() == {"summary", "description"}
        shown = set(re.findall(r"\$labels\.(\w+)", texts["summary"]))
        allowed = {"instance"}.union(*(labels.get(name, set()) for name in asked))
        assert shown <= allowed, rule["alert"]
        relations = re.findall(r"mz_internal\.(\w+)", texts["description"])
        assert set(relations) <= {name for _, name in builtins_by_name()}, rule["alert"]


def test_page_lists_the_rules() -> None:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    page = (ROOT / "docs" / "metrics.md").read_text().partition("## Alerts")[2]
    row = re.compile(r"^\| (Foreshore\w+) \| [^|]+ \| ?(\w*) \| (\w+) \|$", re.MULTILINE)
    assert row.findall(page) == [
        (each["alert"], each.get("for", ""), each["labels"]["severity"]) for each in group["rules"]
    ]


def test_dashboard_is_one_that_grafana_reads() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    assert dashboard["uid"] == "foreshore"
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert 0 < place["w"] <= 24
        assert place["x"] + place["w"] <= 24
        assert panel["type"] == "row" or panel["datasource"] == {
            "type": "prometheus",
            "uid": "${datasource}",
        }


def values(metrics: list[Metric], name: str) -> dict[str, float]:
    """Return the values of a metric by the label `view`, or by its only other label."""
    return {
        sample.labels.get("view") or next(iter(sample.labels.values()), ""): sample.value
        for metric in metrics
        for sample in metric.samples
        if sample.name == name
    }


@pytest.mark.parametrize("most", [1000, 1])
def test_views_have_series_up_to_the_limit(tmp_path: Path, most: int) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran(
            "s",
            "CREATE TABLE t (g int, x int)",
            "INSERT INTO t VALUES (1, 10), (2, 20)",
            "CREATE MATERIALIZED VIEW good AS SELECT g, x FROM t",
            "CREATE MATERIALIZED VIEW bad AS SELECT 1 / (g - 1) AS y FROM t",
            "SELECT * FROM good",
        )
        probed = EnvironmentMetrics(env.environment, most)
        await until(lambda: probed.not_hydrated() == [])
        found = await probed.metrics()
        good, bad = "foreshore.public.good", "foreshore.public.bad"
        errors = values(found, "foreshore_view_errors")
        assert errors == ({good: 0, bad: 1} if most > 1 else {good: 0})
        assert values(found, "foreshore_view_rows")[good] == 2
        assert values(found, "foreshore_view_hydrated")[good] == 1
        assert 0 <= values(found, "foreshore_view_lag_seconds")[good] < 60
        assert values(found, "foreshore_views_without_series") == {"": 2 - min(most, 2)}
        assert values(found, "foreshore_commits_total")[""] >= 1
        assert values(found, "foreshore_storage_shards")[""] >= 3
        assert values(found, "foreshore_sessions")["idle"] == 1
        assert values(found, "foreshore_replica_up") == {"quickstart": 1}

    in_environment(tmp_path, scenario)


def test_statements_are_counted_by_kind() -> None:
    tags: list[str | int | None] = [
        "SELECT 3",
        "INSERT 0 1",
        "CREATE TABLE",
        "COMMIT",
        "COPY 7",
        "SET",
        5,
        None,
    ]
    kinds = ["select", "insert", "definition", "transaction", "copy", "other", "select", "other"]
    assert [kind_of(tag) for tag in tags] == kinds


def test_buckets_are_cumulated() -> None:
    latencies = Latencies()
    latencies.observe(BOUNDS[0])
    latencies.observe(BOUNDS[-1] + 1, 2)
    buckets = dict(latencies.buckets())
    assert buckets[str(BOUNDS[0])] == 1
    assert buckets[str(BOUNDS[-1])] == 1
    assert buckets["+Inf"] == 3
    assert latencies.total == BOUNDS[0] + 2 * (BOUNDS[-1] + 1)
