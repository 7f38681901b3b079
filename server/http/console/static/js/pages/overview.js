// How the database fares: lag and memory of each view over time, commits, sources, sinks.

import { html, useEffect, useState } from "../../vendor/htm/preact.js";
import { catalog } from "../catalog.js";
import { LineChart, Legend, Sparkline, COLOURS } from "../chart.js";
import * as format from "../format.js";
import { doing, healths, lagHistory, metrics, seriesOf } from "../metrics.js";
import { useShared } from "../poll.js";
import { objectLink, setQuery } from "../router.js";
import { Card, Empty, Failure, Icon, Loading, Page, State, stateKind, Table, Tile } from "../ui.js";
import { FirstSteps, isEmpty } from "./first_steps.js";

const SPANS = { now: ["Last minutes", 0], hour: ["Hour", 1], day: ["Day", 24] };
const MOST_LINES = 8;

/** What is kept up to date: materialized views, indexes; with its newest figures. */
export function maintained(data, found) {
  const health = healths(data, found);
  const kept = data.list
    .filter((object) => health.get(object.id)?.status || object.type === "materialized-view" || (object.type === "index" && found.sample.lag.has(object.id)))
    .map((object) => ({
      ...object,
      of: object.on_id ? data.objects.get(object.on_id) : null,
      status: health.get(object.id)?.status || null,
      state: health.get(object.id)?.state || null,
      lag: found.sample.lag.get(object.id) ?? null,
      memory: found.sample.memory.get(object.id) ?? null,
      records: found.sample.records.get(object.id) ?? null,
    }));
  return named(kept);
}

/** Views with the name that is `shown` of each: the shortest that no other has. */
export function named(kept) {
  const ids = new Set(kept.map((view) => view.id));
  const names = new Map(kept.map((view) => [view.id, namesOf(view, ids)]));
  const often = new Map();
  for (const each of names.values()) for (const name of each) often.set(name, (often.get(name) || 0) + 1);
  return kept.map((view) => ({ ...view, shown: names.get(view.id).find((name) => often.get(name) === 1) }));
}

/** What a view may be called, shortest first. An index is called as what it is on, unless that is listed, too. */
function namesOf(view, ids) {
  const { name, id, schema_name: schema } = view;
  const own = [name, `${schema}.${name}`, `${schema}.${name} (${id})`];
  return view.of && !ids.has(view.of.id) ? [view.of.name, `${view.of.schema_name}.${view.of.name}`, ...own] : own;
}

export function Overview({ route }) {
  const { data } = useShared(catalog);
  const { data: found, error } = useShared(metrics);
  if (error && !found) return html`<${Page} title="Overview"><${Failure} error=${error} /></${Page}>`;
  if (!data || !found) return html`<${Page} title="Overview"><${Loading} /></${Page}>`;
  if (isEmpty(data)) return html`<${Page} title="Overview"><${FirstSteps} /></${Page}>`;
  const views = maintained(data, found);
  return html`<${Page} title="Overview">
    <${Tiles} data=${data} found=${found} views=${views} />
    <${Freshness} views=${views} span=${route.query.get("span") || "now"} />
    <div class="two">
      <${Memory} views=${views} />
      <${Rates} found=${found} />
    </div>
    <${Views} views=${views} />
    <${Externals} title="Sources" kind="source" data=${data} list=${found.sources} now=${found.sample.t} />
    <${Externals} title="Sinks" kind="sink" data=${data} list=${found.sinks} now=${found.sample.t} />
  </${Page}>`;
}

function Tiles({ data, found, views }) {
  const behind = views.filter((view) => view.lag !== null);
  const worst = behind.reduce((most, view) => (most === null || view.lag > most.lag ? view : most), null);
  const none = views.length ? `none is known yet: ${format.count(views.length)} views are being filled` : "nothing is maintained";
  const memory = [...found.sample.memory.values()].reduce((a, b) => a + b, 0);
  const rate = found.rates[found.rates.length - 1];
  return html`<div class="tiles">
    <${Tile} label="Views kept up to date" value=${format.count(views.length)} note=${noteOf(views)} />
    <${Tile} label="Greatest lag" value=${worst ? format.duration(worst.lag) : "–"} note=${worst ? worst.shown : none} title="How far the slowest view is behind the wall clock" />
    <${Tile} label="Memory of views" value=${format.bytes(memory)} note=${`${format.compact([...found.sample.records.values()].reduce((a, b) => a + b, 0))} records`} title="Arrangements and indexes of all replicas" />
    <${Tile} label="Transactions per second" value=${rate ? format.compact(rate.commits) : "–"} note=${rate ? `${format.compact(rate.written)} rows written` : "measuring"} title="All transactions that committed, those of this page included" />
    <${Tile} label="Sessions" value=${format.count(found.sample.sessions)} note=${`${format.count(data.list.filter((o) => o.type === "table" && !o.system).length)} tables`} />
  </div>`;
}

/** How many views are in another state than running; red if some need somebody. */
function noteOf(views) {
  if (!views.length) return "there is none yet";
  const found = new Map();
  for (const { state } of views) if (state && state !== "running") found.set(state, (found.get(state) || 0) + 1);
  if (!found.size) return "all running";
  const text = [...found].map(([state, number]) => `${format.count(number)} ${state}`).join(", ");
  return [...found.keys()].some((state) => stateKind(state) === "bad") ? html`<span class="bad-text">${text}</span>` : html`<span class="waiting-text">${text}</span>`;
}

function lines(views, pointsOf) {
  return views
    .map((view) => ({ name: view.shown, points: pointsOf(view) }))
    .filter((one) => one.points.length)
    .map((one) => ({ ...one, peak: one.points.reduce((most, [, value]) => Math.max(most, value ?? 0), 0) }))
    .sort((a, b) => b.peak - a.peak)
    .slice(0, MOST_LINES)
    .sort((a, b) => (a.name < b.name ? -1 : 1))
    .map((one, i) => ({ ...one, colour: i % COLOURS }));
}

function Freshness({ views, span }) {
  const [history, setHistory] = useState(null);
  const hours = (SPANS[span] || SPANS.now)[1];
  useEffect(() => {
    setHistory(null);
    if (!hours) return undefined;
    let here = true;
    lagHistory(hours).then((all) => here && setHistory({ all }), (error) => here && setHistory({ error }));
    return () => (here = false);
  }, [hours]);
  const series = lines(views, (view) => (hours ? history?.all?.get(view.id) || [] : seriesOf("lag", view.id)));
  const choice = html`<div class="segments" role="group" aria-label="Time shown">${Object.entries(SPANS).map(
    ([id, [name]]) => html`<button key=${id} class="small" aria-pressed=${id === span} onClick=${() => setQuery({ span: id })}>${name}</button>`,
  )}</div>`;
  const waiting = hours && !history;
  return html`<${Card} title="Lag behind the wall clock" aside=${choice}>
    <${Failure} error=${history?.error} />
    <${LineChart} series=${series} format=${format.duration} height=${200} label="Lag of each view over time"
      empty=${waiting ? "Loading …" : hours ? "There is no history of this time" : views.length ? "Measuring …" : "Create a materialized view or an index to see its lag"} />
    <${Legend} series=${series} />
  </${Card}>`;
}

function Memory({ views }) {
  const series = lines(views, (view) => seriesOf("memory", view.id));
  return html`<${Card} title="Memory of each view">
    <${LineChart} series=${series} format=${format.bytes} height=${170} label="Memory of each view over time" empty="Nothing is kept in memory, or measuring" />
    <${Legend} series=${series} />
  </${Card}>`;
}

function Rates({ found }) {
  const series = [
    { name: "transactions", colour: 0, points: found.rates.map((rate) => [rate.t, rate.commits]) },
    { name: "rows written", colour: 1, points: found.rates.map((rate) => [rate.t, rate.written]) },
  ];
  return html`<${Card} title="Per second">
    <${LineChart} series=${series} format=${format.compact} height=${170} label="Transactions and rows written per second" empty="Measuring …" />
    <${Legend} series=${series} />
  </${Card}>`;
}

const numberOf = (value) => (value === null || value === undefined ? null : Number(value));

function Views({ views }) {
  const columns = [
    { label: "View", by: (view) => view.shown, value: (view) => html`<a class="name" href=${objectLink(view.of || view)}><${Icon} name=${view.type} />${view.shown}</a><small class="dim"> ${view.of && (view.shown.includes(view.name) ? `on ${view.of.name}` : view.name)}</small>` },
    { label: "State", by: (view) => view.state, value: (view) => html`<${State} state=${view.state} title=${view.status?.failure || ""} />` },
    ...(views.some((view) => view.status?.failure) ? [{ label: "Error", kind: "wrap", value: (view) => view.status?.failure && html`<a class="bad-text" href=${objectLink(view.of || view, { tab: "errors" })}>${view.status.failure}</a>` }] : []),
    { label: "Lag", kind: "number", by: (view) => view.lag, value: (view) => format.duration(view.lag) },
    { label: "", hidden: "Lag over time", value: (view) => html`<${Sparkline} points=${seriesOf("lag", view.id).slice(-60)} label=${"Lag of " + view.shown} />` },
    { label: "Memory", kind: "number", by: (view) => view.memory, value: (view) => format.bytes(view.memory) },
    { label: "Records", kind: "number", by: (view) => view.records, value: (view) => format.compact(view.records) },
    { label: "Hydrated in", kind: "number", by: (view) => numberOf(view.status?.hydration_ms), value: (view) => format.duration(view.status?.hydration_ms) },
    { label: "Step", kind: "number", by: (view) => numberOf(view.status?.step_ms), value: (view) => format.duration(view.status?.step_ms) },
    { label: "Cluster", by: (view) => view.cluster, value: (view) => view.cluster || "–" },
  ];
  return html`<${Card} title="Views" flush>
    ${views.length
      ? html`<${Table} columns=${columns} rows=${views} rowKey=${(view) => view.id} label="Views" />`
      : html`<${Empty} title="No view is maintained yet">CREATE MATERIALIZED VIEW, or an index on a view, and it is here.</${Empty}>`}
  </${Card}>`;
}

/** Sources or sinks, with what they are doing. */
function Externals({ title, kind, data, list, now }) {
  if (!list.length) return null;
  const columns = [
    { label: "Name", value: (each) => (data.objects.get(each.id) ? html`<a class="name" href=${objectLink(data.objects.get(each.id))}><${Icon} name=${kind} />${each.name}</a>` : each.name) },
    { label: "Type", value: (each) => each.type },
    { label: "State", value: (each) => html`<${State} state=${each.status} />` },
    { label: "Since", value: (each) => `${format.ago(each.last_status_change_at)} ago` },
    { label: "", hidden: "What it does", kind: "wrap", value: (each) => html`${each.error && html`<span class="bad-text">${each.error}</span>`} <span class="dim">${doing(each, now)}</span>` },
  ];
  return html`<${Card} title=${title} flush><${Table} columns=${columns} rows=${list} rowKey=${(each) => each.id} label=${title} /></${Card}>`;
}
