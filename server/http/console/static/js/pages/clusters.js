// Clusters and their replicas: what they run, what it costs, how late the server's loop was.

import { html } from "../../vendor/htm/preact.js";
import { statements } from "../api.js";
import { catalog } from "../catalog.js";
import { Legend, LineChart } from "../chart.js";
import * as format from "../format.js";
import { metrics } from "../metrics.js";
import { usePoll, useShared } from "../poll.js";
import { link, objectLink } from "../router.js";
import { Card, Empty, Failure, Icon, Loading, Page, State, Table, Tile } from "../ui.js";
import { maintained } from "./overview.js";

const QUERIES = {
  statuses: "SELECT replica_id, status, reason FROM mz_internal.mz_cluster_replica_statuses",
  options: "SELECT cluster_id, name, value FROM mz_internal.mz_cluster_options",
  work: "SELECT replica_id, object_id, elapsed_ns FROM mz_introspection.mz_scheduling_elapsed",
  loop: "SELECT (extract(epoch FROM window_end) * 1000)::float8 AS t, avg_ms, max_ms FROM mz_internal.mz_message_loop_latency",
  checkpoints: "SELECT replica_id, saved_at, size FROM mz_internal.mz_checkpoints",
  arrangements: "SELECT replica_id, size FROM mz_introspection.mz_arrangement_sizes",
};

async function ask() {
  const answers = await statements(Object.values(QUERIES));
  return Object.fromEntries(Object.keys(QUERIES).map((name, i) => [name, answers[i]]));
}

const sum = (rows, name) => rows.reduce((total, row) => total + Number(row[name] || 0), 0);

export function Clusters({ route }) {
  const { data } = useShared(catalog);
  const { data: found } = useShared(metrics);
  const { data: more, error } = usePoll(ask, 2000);
  if (error && !more) return html`<${Page} title="Clusters"><${Failure} error=${error} /></${Page}>`;
  if (!data || !found || !more) return html`<${Page} title="Clusters"><${Loading} /></${Page}>`;
  const chosen = data.clusters.find((cluster) => cluster.name === route.parts[0]);
  if (route.parts[0] && !chosen) return html`<${Page} title="Clusters"><${Empty} title=${`There is no cluster ${route.parts[0]}`} /></${Page}>`;
  const shown = chosen ? [chosen] : data.clusters;
  return html`<${Page} title=${chosen ? `Cluster ${chosen.name}` : "Clusters"} actions=${chosen && html`<a class="button" href=${link("clusters")}>All clusters</a>`}>
    ${shown.map((cluster) => html`<${Cluster} key=${cluster.id} cluster=${cluster} data=${data} more=${more} />`)}
    ${chosen && html`<${Work} cluster=${chosen} data=${data} found=${found} more=${more} />`}
    ${!chosen && html`<${Loop} loop=${more.loop} />`}
  </${Page}>`;
}

function Cluster({ cluster, data, more }) {
  const replicas = data.replicas.filter((replica) => replica.cluster_id === cluster.id);
  const options = more.options.filter((option) => option.cluster_id === cluster.id && option.value !== null);
  const rows = replicas.map((replica) => {
    const mine = (list) => list.filter((row) => row.replica_id === replica.id);
    return {
      ...replica,
      status: mine(more.statuses)[0],
      memory: sum(mine(more.arrangements), "size"),
      cpu: sum(mine(more.work), "elapsed_ns") / 1e6,
      dataflows: new Set(mine(more.work).map((row) => row.object_id)).size,
      checkpoint: mine(more.checkpoints).map((row) => row.saved_at).sort().pop(),
    };
  });
  const columns = [
    { label: "Replica", value: (replica) => replica.name },
    { label: "State", value: (replica) => html`<${State} state=${replica.status?.status} title=${replica.status?.reason || ""} />${replica.status?.reason && html` <small class="bad-text">${replica.status.reason}</small>`}` },
    { label: "Workers", kind: "number", value: (replica) => replica.workers ?? 1 },
    { label: "Dataflows", kind: "number", value: (replica) => replica.dataflows },
    { label: "Memory", kind: "number", value: (replica) => format.bytes(replica.memory) },
    { label: "CPU of dataflows", kind: "number", value: (replica) => format.duration(replica.cpu) },
    { label: "Last checkpoint", value: (replica) => (replica.checkpoint ? `${format.ago(replica.checkpoint)} ago` : "none") },
  ];
  const title = html`<a href=${link("clusters", [cluster.name])}>${cluster.name}</a>`;
  const note = html`<span class="dim">${[cluster.size, ...options.map((option) => `${option.name} ${option.value}`)].filter(Boolean).join(" · ")}</span>`;
  return html`<${Card} title=${title} aside=${note} flush>
    <${Table} columns=${columns} rows=${rows} rowKey=${(row) => row.id} label=${`Replicas of ${cluster.name}`} empty="No replica: nothing of this cluster is computed." />
  </${Card}>`;
}

function Work({ cluster, data, found, more }) {
  const cpu = new Map();
  for (const row of more.work) cpu.set(row.object_id, (cpu.get(row.object_id) || 0) + Number(row.elapsed_ns) / 1e6);
  const views = maintained(data, found).filter((view) => view.cluster_id === cluster.id);
  const columns = [
    { label: "Object", value: (view) => html`<a class="name" href=${objectLink(view.of || view)}><${Icon} name=${view.type} />${view.shown}</a>` },
    { label: "State", value: (view) => html`<${State} state=${view.status?.state} title=${view.status?.failure || ""} />` },
    { label: "Lag", kind: "number", value: (view) => format.duration(view.lag) },
    { label: "Memory", kind: "number", value: (view) => format.bytes(view.memory) },
    { label: "CPU", kind: "number", value: (view) => format.duration(cpu.get(view.id)) },
    { label: "", value: (view) => html`<a href=${objectLink(view, { tab: "dataflow" })}>Dataflow</a>` },
  ];
  return html`<div class="tiles">
      <${Tile} label="Objects" value=${format.count(views.length)} />
      <${Tile} label="Memory" value=${format.bytes(sum(views, "memory"))} />
      <${Tile} label="CPU so far" value=${format.duration(views.reduce((total, view) => total + (cpu.get(view.id) || 0), 0))} />
    </div>
    <${Card} title="What it maintains" flush><${Table} columns=${columns} rows=${views} rowKey=${(view) => view.id} label="Objects of the cluster" empty="Nothing yet." /></${Card}>`;
}

function Loop({ loop }) {
  const points = (name) => loop.map((row) => [row.t, row[name]]).sort((a, b) => a[0] - b[0]);
  const series = [
    { name: "most", colour: 1, points: points("max_ms") },
    { name: "average", colour: 0, points: points("avg_ms") },
  ];
  return html`<${Card} title="How late the server's event loop was" aside=${html`<span class="dim">the last minute</span>`}>
    <${LineChart} series=${series} format=${format.duration} height=${150} label="Latency of the event loop" />
    <${Legend} series=${series} />
  </${Card}>`;
}
