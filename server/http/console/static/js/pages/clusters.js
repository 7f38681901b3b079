// Clusters and their replicas: what they run, what it costs, how late the server's loop was.

import { html } from "../../vendor/htm/preact.js";
import { statements } from "../api.js";
import { catalog } from "../catalog.js";
import { COLOURS, Legend, LineChart } from "../chart.js";
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
  used: `SELECT replica_id, (extract(epoch FROM occurred_at) * 1000)::float8 AS t, cpu_nano_cores::float8 / 1e7 AS cpu, memory_bytes::float8 AS memory
    FROM mz_internal.mz_cluster_replica_metrics_history WHERE occurred_at > now() - interval '30 minutes' ORDER BY occurred_at`,
  changes: `SELECT replica_id, occurred_at, (extract(epoch FROM occurred_at) * 1000)::float8 AS t, status, reason
    FROM mz_internal.mz_cluster_replica_status_history ORDER BY occurred_at DESC LIMIT 500`,
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
    ${shown.map((cluster) => html`<${Usage} key=${cluster.id} cluster=${cluster} data=${data} more=${more} />`)}
    ${chosen && html`<${Changes} cluster=${chosen} data=${data} more=${more} />`}
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
      used: mine(more.used).pop(),
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
    { label: "CPU", kind: "number", value: (replica) => (replica.used?.cpu == null ? "–" : `${replica.used.cpu.toFixed(1)} %`) },
    { label: "Process", kind: "number", value: (replica) => format.bytes(replica.used?.memory) },
    { label: "Arrangements", kind: "number", value: (replica) => format.bytes(replica.memory) },
    { label: "CPU of dataflows", kind: "number", value: (replica) => format.duration(replica.cpu) },
    { label: "Last checkpoint", value: (replica) => (replica.checkpoint ? `${format.ago(replica.checkpoint)} ago` : "none") },
  ];
  const title = html`<a href=${link("clusters", [cluster.name])}>${cluster.name}</a>`;
  const note = html`<span class="dim">${[cluster.size, ...options.map((option) => `${option.name} ${option.value}`)].filter(Boolean).join(" · ")}</span>`;
  return html`<${Card} title=${title} aside=${note} flush>
    <${Table} columns=${columns} rows=${rows} rowKey=${(row) => row.id} label=${`Replicas of ${cluster.name}`} empty="No replica: nothing of this cluster is computed." />
  </${Card}>`;
}

const isCrash = (change) => change.status === "offline";

/** CPU and memory of a cluster's replicas, with a mark where one has ended. */
function Usage({ cluster, data, more }) {
  const replicas = data.replicas.filter((replica) => replica.cluster_id === cluster.id);
  if (!replicas.length) return null;
  const nameOf = new Map(replicas.map((replica) => [replica.id, replica.name]));
  const marks = more.changes
    .filter((change) => nameOf.has(change.replica_id) && isCrash(change))
    .map((change) => ({ at: change.t, text: `${nameOf.get(change.replica_id)} ${change.status}${change.reason ? ": " + change.reason : ""}` }));
  const series = (name) =>
    replicas.slice(0, COLOURS).map((replica, i) => ({
      name: replica.name,
      colour: i,
      points: more.used.filter((row) => row.replica_id === replica.id).map((row) => [row.t, row[name]]),
    }));
  const chart = (title, name, shown) => html`<${Card} title=${`${title} of ${cluster.name}`}>
    <${LineChart} series=${series(name)} format=${shown} height=${150} label=${`${title} of ${cluster.name}`} empty="Measuring …" marks=${marks} />
    <${Legend} series=${series(name)} note=${marks.length ? "a replica ended" : null} />
  </${Card}>`;
  return html`<div class="two">${chart("CPU", "cpu", (value) => `${format.compact(value)} %`)}${chart("Memory", "memory", format.bytes)}</div>`;
}

function Changes({ cluster, data, more }) {
  const nameOf = new Map(data.replicas.filter((replica) => replica.cluster_id === cluster.id).map((replica) => [replica.id, replica.name]));
  const columns = [
    { label: "Since", value: (c) => html`${format.when(format.moment(c.occurred_at))}<small class="dim"> ${format.ago(c.occurred_at)} ago</small>` },
    { label: "Replica", value: (c) => nameOf.get(c.replica_id) },
    { label: "State", value: (c) => html`<${State} state=${c.status} />` },
    { label: "Reason", kind: "wrap", value: (c) => c.reason || html`<span class="dim">–</span>` },
  ];
  return html`<${Card} title="States of replicas since the start of the server" flush>
    <${Table} columns=${columns} rows=${more.changes.filter((c) => nameOf.has(c.replica_id)).slice(0, 50)} label="States of replicas" empty="Nothing has changed yet." /></${Card}>`;
}

function Work({ cluster, data, found, more }) {
  const cpu = new Map();
  for (const row of more.work) cpu.set(row.object_id, (cpu.get(row.object_id) || 0) + Number(row.elapsed_ns) / 1e6);
  const views = maintained(data, found).filter((view) => view.cluster_id === cluster.id);
  const columns = [
    { label: "Object", value: (view) => html`<a class="name" href=${objectLink(view.of || view)}><${Icon} name=${view.type} />${view.shown}</a>` },
    { label: "State", value: (view) => html`<${State} state=${view.state} title=${view.status?.failure || ""} />` },
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
