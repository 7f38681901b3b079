// How the database fares: asked every two seconds, with the samples of the last minutes kept here.

import { rows, statements } from "./api.js";
import { closure } from "./catalog.js";
import { ago, compact, due } from "./format.js";
import { Poller } from "./poll.js";

const INTERVAL_MS = 2000;
const MOST_SAMPLES = 450; // a quarter of an hour
const MOST_OBJECTS = 5000;
const BEHIND_MS = 10_000; // a running view is told to be behind from there on

const outside = (kind) => `SELECT id, name, type, status, error, details, next_try_at, last_status_change_at FROM mz_internal.mz_${kind}_statuses`;

const QUERIES = {
  lag: "SELECT object_id, (extract(epoch FROM lag) * 1000)::float8 AS lag FROM mz_internal.mz_wallclock_global_lag WHERE object_id LIKE 'u%'",
  scheduled: "SELECT DISTINCT materialized_view_id AS id FROM mz_internal.mz_materialized_view_refresh_strategies WHERE type <> 'on-commit'",
  dataflows: `SELECT object_id, replica_id, state, hydration_ms, steps, step_ms, arranged_rows, arranged_bytes, failure
    FROM mz_internal.mz_dataflow_statuses`,
  memory: "SELECT object_id, replica_id, size, records FROM mz_introspection.mz_records_per_dataflow",
  activity: "SELECT xact_commit, tup_inserted, tup_updated, tup_deleted, numbackends FROM pg_stat_database",
  sources: outside("source"),
  sinks: outside("sink"),
  time: "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS now",
};

/** The state of a dataflow as people should know it: failed if its last step was, failing if reads of it are. */
export function stateOf(row) {
  return row.failure && !["failing", "stalled"].includes(row.state) ? "failed" : row.state;
}

/**
 * What people should know of each view, index, source and sink: Map of id to {state, failure, lag, status}.
 *
 * A view on several replicas has the state of the worst. One that runs, but is BEHIND_MS behind the
 * clock, is behind, unless it or what it reads waits for the time of its next refresh.
 */
export function healths(data, found) {
  const states = new Map();
  for (const row of found.dataflows) {
    const before = states.get(row.object_id);
    if (!before || (row.failure && !before.failure) || (before.state === "running" && row.state !== "running")) states.set(row.object_id, row);
  }
  const scheduled = new Set(found.scheduled.map(({ id }) => id));
  const waits = (id) => scheduled.size > 0 && [...closure(id, data.uses)].some((each) => scheduled.has(each));
  const health = new Map();
  for (const [id, status] of states) {
    const lag = found.sample.lag.get(id) ?? null;
    const state = stateOf(status);
    const behind = state === "running" && lag !== null && lag > BEHIND_MS && !waits(id);
    health.set(id, { state: behind ? "behind" : state, failure: status.failure || null, lag, status });
  }
  for (const row of [...found.sources, ...found.sinks]) health.set(row.id, { state: row.status, failure: row.error || null, lag: null, status: null });
  return health;
}

/** The worst of several healths; undefined if there is none. */
export function worst(several) {
  const known = several.filter(Boolean);
  return known.find((each) => each.failure) || known.find((each) => each.state !== "running") || known[0];
}

/** What a source or sink is doing beside its state: its next try, or the requests of a webhook. */
export function doing(outside, now) {
  if (outside.status === "stalled") return due(outside.next_try_at, now);
  const of = outside.details;
  if (!of || of.received === undefined) return "";
  const received = of.last_received_at ? `${compact(of.received)} received, the last ${ago(of.last_received_at, now)} ago` : "nothing received since the start";
  const why = of.last_refusal ? `: ${of.last_refusal}` : "";
  return of.refused ? `${received}; ${compact(of.refused)} refused, the last ${ago(of.last_refused_at, now)} ago${why}` : received;
}

export const samples = []; // {t, lag: Map, memory: Map, commits, written}; oldest first

async function ask() {
  const names = Object.keys(QUERIES);
  const answers = await statements(Object.values(QUERIES));
  const found = Object.fromEntries(names.map((name, i) => [name, answers[i]]));
  const sample = sampleOf(found);
  samples.push(sample);
  if (samples.length > MOST_SAMPLES) samples.shift();
  return { ...found, sample, rates: rates() };
}

function sampleOf(found) {
  const lag = new Map(found.lag.filter((row) => row.lag !== null).slice(0, MOST_OBJECTS).map((row) => [row.object_id, row.lag]));
  const memory = new Map();
  const records = new Map();
  for (const row of found.memory.slice(0, MOST_OBJECTS)) {
    memory.set(row.object_id, (memory.get(row.object_id) || 0) + Number(row.size));
    records.set(row.object_id, (records.get(row.object_id) || 0) + Number(row.records));
  }
  const sum = (name) => found.activity.reduce((total, row) => total + Number(row[name]), 0);
  return {
    t: found.time[0].now,
    lag,
    memory,
    records,
    commits: sum("xact_commit"),
    written: sum("tup_inserted") + sum("tup_updated") + sum("tup_deleted"),
    sessions: sum("numbackends"),
  };
}

/** [{t, commits, written}]: per second, between each two samples. */
export function rates() {
  const found = [];
  for (let i = 1; i < samples.length; i += 1) {
    const [before, after] = [samples[i - 1], samples[i]];
    const seconds = (after.t - before.t) / 1000;
    if (seconds <= 0 || after.commits < before.commits) continue; // the server was restarted
    found.push({
      t: after.t,
      commits: (after.commits - before.commits) / seconds,
      written: Math.max(0, after.written - before.written) / seconds,
    });
  }
  return found;
}

/** [[t, value]] of one object; `what` is "lag" or "memory". */
export function seriesOf(what, id) {
  return samples.filter((sample) => sample[what].has(id)).map((sample) => [sample.t, sample[what].get(id)]);
}

export const metrics = new Poller(ask, INTERVAL_MS);

/** The greatest lag of each minute of the last hours: Map of id to [[t, ms or null]]. */
export async function lagHistory(hours) {
  const found = await rows(
    `SELECT object_id, (extract(epoch FROM occurred_at) * 1000)::float8 AS t, (extract(epoch FROM lag) * 1000)::float8 AS lag
     FROM mz_internal.mz_wallclock_global_lag_history
     WHERE occurred_at > now() - $1::text::interval ORDER BY occurred_at`,
    [`${hours} hours`],
  );
  const history = new Map();
  for (const { object_id: id, t, lag } of found) {
    if (!history.has(id)) history.set(id, []);
    history.get(id).push([t, lag]);
  }
  return history;
}
