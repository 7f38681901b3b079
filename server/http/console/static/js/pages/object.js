// One object: its contents live, columns, definition, dependencies, dataflow, freshness and rights.

import { html, useEffect, useState } from "../../vendor/htm/preact.js";
import { rows, statement } from "../api.js";
import { closure } from "../catalog.js";
import { COLOURS, Legend, LineChart, Sparkline } from "../chart.js";
import * as format from "../format.js";
import { doing, healths, lagHistory, metrics, seriesOf, worst } from "../metrics.js";
import { usePoll, useShared } from "../poll.js";
import { link, objectLink } from "../router.js";
import { formatted } from "../sql_format.js";
import { quoteName, quoteNames } from "../sql_text.js";
import { Badge, Card, Failure, Field, Icon, Loading, Page, Sql, State, Table, Tabs, Tile } from "../ui.js";
import { Activity } from "./activity.js";
import { PublicKeys, Validate } from "./connections.js";
import { Contents } from "./contents.js";
import { Dataflow } from "./dataflow.js";
import { Errors } from "./errors.js";
import { Workflow } from "./objects.js";

const RELATIONS = new Set(["table", "view", "materialized-view", "source"]);
const KEYWORDS = { "materialized-view": "MATERIALIZED VIEW" };

export const keywordOf = (type) => KEYWORDS[type] || type.toUpperCase();
export const nameOf = (object) => quoteNames(object.database_name, object.schema_name, object.name);

/** The objects whose dataflows keep this one: itself, or the indexes of a view. */
export function maintainers(object, data) {
  if (object.type === "materialized-view" || object.type === "index") return [object];
  return (data.indexes.get(object.id) || []).map((id) => data.objects.get(id)).filter(Boolean);
}

export function ObjectPage({ object, data, route }) {
  const { data: found } = useShared(metrics);
  const relation = RELATIONS.has(object.type);
  const keepers = maintainers(object, data);
  const tabs = [
    ...(object.type === "sink" ? [["activity", "Activity"]] : []),
    ...(relation ? [["contents", "Contents"], ["columns", "Columns"]] : []),
    ...(object.type === "source" ? [["activity", "Activity"]] : []),
    ...(object.type !== "secret" ? [["definition", "Definition"]] : []),
    ["dependencies", "Dependencies"],
    ...(keepers.length && object.type !== "table" ? [["dataflow", "Dataflow"]] : []),
    ...(["view", "materialized-view", "index"].includes(object.type) ? [["freshness", "Freshness"]] : []),
    ...(["view", "materialized-view", "index", "source"].includes(object.type) ? [["errors", "Errors"]] : []),
    ["rights", "Rights"],
  ];
  const tab = tabs.some(([id]) => id === route.query.get("tab")) ? route.query.get("tab") : tabs[0][0];
  const query = relation && html`<a class="button" href=${link("sql", [], { q: `SELECT * FROM ${nameOf(object)} LIMIT 100` })}><${Icon} name="sql" /> Query</a>`;
  return html`<${Page} title=${object.name} actions=${query} wide>
    <div class="about"><${Badge}>${format.kindName(object.type)}</${Badge}>
      <span class="dim">${object.database_name}.${object.schema_name}</span><span class="dim">owner ${object.owner}</span>
      ${object.cluster && html`<a href=${link("clusters", [object.cluster])}>cluster ${object.cluster}</a>`}
      ${object.on_id && data.objects.get(object.on_id) && html`<a href=${objectLink(data.objects.get(object.on_id))}>on ${data.objects.get(object.on_id).name}</a>`}
    </div>
    <${Comment} id=${object.id} />
    <${Figures} object=${object} keepers=${keepers} data=${data} found=${found} />
    <${Tabs} tabs=${tabs} active=${tab} />
    ${object.type === "connection" && html`<${Validate} object=${object} />`}
    ${object.reaches === "ssh-tunnel" && html`<${PublicKeys} object=${object} />`}
    ${tab === "activity" && html`<${Activity} object=${object} route=${route} />`}
    ${tab === "contents" && html`<${Contents} object=${object} data=${data} name=${nameOf(object)} />`}
    ${tab === "columns" && html`<${Columns} object=${object} />`}
    ${tab === "definition" && html`<${Definition} object=${object} />`}
    ${tab === "dependencies" && html`<${Dependencies} object=${object} data=${data} found=${found} />`}
    ${tab === "dataflow" && html`<${Dataflow} keepers=${keepers} data=${data} route=${route} />`}
    ${tab === "freshness" && html`<${Freshness} object=${object} keepers=${keepers} />`}
    ${tab === "errors" && html`<${Errors} object=${object} data=${data} />`}
    ${tab === "rights" && html`<${Rights} object=${object} />`}
  </${Page}>`;
}

function Comment({ id }) {
  const { data } = useAnswer(() => rows("SELECT comment FROM mz_internal.mz_comments WHERE id = $1 AND object_sub_id IS NULL", [id]), id);
  return data?.[0] ? html`<p class="comment">${data[0].comment}</p>` : null;
}

function Figures({ object, keepers, data, found }) {
  if (!found) return html`<div class="tiles"><${Tile} label="…" value="–" /></div>`;
  const known = [...new Set([object.id, ...keepers.map((keeper) => keeper.id)])];
  const lagOf = known.filter((id) => found.sample.lag.has(id));
  const slow = lagOf.reduce((most, id) => (most === null || found.sample.lag.get(id) > found.sample.lag.get(most) ? id : most), null);
  const memory = known.reduce((sum, id) => sum + (found.sample.memory.get(id) || 0), 0);
  const records = known.reduce((sum, id) => sum + (found.sample.records.get(id) || 0), 0);
  const states = found.dataflows.filter((row) => known.includes(row.object_id));
  const outside = [...found.sources, ...found.sinks].find((row) => row.id === object.id);
  const health = healths(data, found);
  const shown = worst(known.map((id) => health.get(id)).filter((each) => each?.status));
  const state = shown?.status;
  if (slow === null && !states.length && object.size === null && !outside) return null;
  return html`<div class="tiles">
    ${slow !== null && html`<${Tile} label="Lag" value=${format.duration(found.sample.lag.get(slow))} note=${html`<${Sparkline} points=${seriesOf("lag", slow).slice(-60)} width="120" label="Lag" />`} />`}
    ${states.length > 0 && html`<${Tile} label="Memory" value=${format.bytes(memory)} note=${`${format.compact(records)} records`} />`}
    ${state && html`<${Tile} label="Dataflow" value=${html`<${State} state=${shown.state} />`} note=${state.failure || `hydrated in ${format.duration(state.hydration_ms)}`} title=${state.failure} />`}
    ${state && html`<${Tile} label="Last step" value=${format.duration(state.step_ms)} note=${`${format.compact(state.steps)} steps`} />`}
    ${outside && html`<${Tile} label=${format.kindName(object.type)} value=${html`<${State} state=${outside.status} />`} note=${outside.status === "stalled" ? doing(outside, found.sample.t) : `for ${format.ago(outside.last_status_change_at)}`} />`}
    ${object.size !== null && html`<${Tile} label="Stored" value=${format.bytes(object.size)} />`}
  </div>
  ${outside?.error && html`<${Failure} error=${{ message: outside.error, fields: { message: outside.error, detail: `Since ${format.ago(outside.last_status_change_at, found.sample.t)}; ${doing(outside, found.sample.t)}.` } }} />`}
  ${outside?.details && html`<p class="dim">${doing(outside, found.sample.t)}</p>`}`;
}

/** Ask once for each `key`; gives {data, error}. */
export function useAnswer(ask, key) {
  const [state, setState] = useState({ key: null });
  useEffect(() => {
    let here = true;
    ask().then(
      (data) => here && setState({ key, data }),
      (error) => here && setState({ key, error }),
    );
    return () => (here = false);
  }, [key]);
  return state.key === key ? state : {};
}

function Columns({ object }) {
  const { data, error } = useAnswer(async () => {
    const [columns, comments] = await Promise.all([
      rows("SELECT name, position, nullable, type, \"default\" FROM mz_columns WHERE id = $1 ORDER BY position", [object.id]),
      rows("SELECT object_sub_id, comment FROM mz_internal.mz_comments WHERE id = $1", [object.id]),
    ]);
    const about = new Map(comments.map((comment) => [Number(comment.object_sub_id), comment.comment]));
    return columns.map((column) => ({ ...column, comment: about.get(Number(column.position)) }));
  }, object.id);
  if (!data) return error ? html`<${Failure} error=${error} />` : html`<${Loading} />`;
  const columns = [
    { label: "#", kind: "number", value: (c) => c.position },
    { label: "Column", value: (c) => html`<b>${c.name}</b>` },
    { label: "Type", value: (c) => html`<code>${c.type}</code>` },
    { label: "NULL", value: (c) => (c.nullable ? "allowed" : "never") },
    { label: "Default", value: (c) => (c.default ? html`<code>${c.default}</code>` : html`<span class="dim">–</span>`) },
    { label: "Comment", value: (c) => c.comment || "" },
  ];
  return html`<${Card} flush><${Table} columns=${columns} rows=${data} label="Columns" /></${Card}>
    <${Keys} object=${object} />`;
}

/** Constraints and indexes of a relation. */
function Keys({ object }) {
  const { data, error } = useAnswer(async () => {
    const [constraints, indexes] = await Promise.all([
      rows("SELECT conname AS name, pg_get_constraintdef(oid) AS definition FROM pg_constraint WHERE conrelid = $1::text::oid ORDER BY 1", [object.oid]),
      rows(
        `SELECT i.name, pg_get_indexdef(i.oid) AS definition, k.name AS cluster FROM mz_indexes i LEFT JOIN mz_clusters k ON k.id = i.cluster_id
         WHERE i.on_id = $1 ORDER BY 1`,
        [object.id],
      ),
    ]);
    return [...constraints.map((each) => ({ ...each, what: "constraint" })), ...indexes.map((each) => ({ ...each, what: "index" }))];
  }, object.id);
  if (!data) return error ? html`<${Failure} error=${error} />` : null;
  const columns = [
    { label: "Name", value: (k) => html`<b>${k.name}</b>` },
    { label: "Kind", value: (k) => k.what },
    { label: "Definition", kind: "wrap", value: (k) => html`<code>${k.definition}</code>` },
    { label: "Cluster", value: (k) => k.cluster || "–" },
  ];
  return html`<${Card} title="Constraints and indexes" flush><${Table} columns=${columns} rows=${data} label="Constraints and indexes" empty="It has none." /></${Card}>`;
}

function Definition({ object }) {
  const { data, error } = useAnswer(async () => {
    const result = await statement(`SHOW CREATE ${keywordOf(object.type)} ${nameOf(object)}`);
    return result.rows[0][result.rows[0].length - 1];
  }, object.id);
  if (!data) return error ? html`<${Failure} error=${error} />` : html`<${Loading} />`;
  return html`<${Card}><${Sql} text=${formatted(data)} /></${Card}>`;
}

function Dependencies({ object, data, found }) {
  const ids = new Set([...closure(object.id, data.uses), ...closure(object.id, data.usedBy)]);
  const list = (all, what) => html`<${Field} label=${what}>${all.length
    ? all.map((id) => data.objects.get(id)).filter(Boolean).map((o) => html`<a class="chip" key=${o.id} href=${objectLink(o, { tab: "dependencies" })}><${Icon} name=${o.type} size="13" />${o.name}</a>`)
    : html`<span class="dim">nothing</span>`}</${Field}>`;
  return html`<${Card}>
    <dl class="fields">${list(data.uses.get(object.id) || [], "Made of")}${list(data.usedBy.get(object.id) || [], "Used by")}</dl>
    <${Workflow} data=${data} found=${found} ids=${ids} selected=${object.id} />
  </${Card}>`;
}

const SPAN_HOURS = 24;

/** The lag of the last day and the memory since the page was opened. */
function History({ keepers }) {
  const key = keepers.map((keeper) => keeper.id).join();
  const { data, error } = useAnswer(() => lagHistory(SPAN_HOURS), key);
  useShared(metrics);
  const series = (pointsOf) => keepers.map((keeper, i) => ({ name: keeper.name, colour: i % COLOURS, points: pointsOf(keeper.id) })).filter((one) => one.points.length);
  const lags = series((id) => data?.get(id) || []);
  const memory = series((id) => seriesOf("memory", id));
  return html`<div class="two">
    <${Card} title="Greatest lag of each minute" aside=${html`<span class="dim">the last day</span>`}>
      <${Failure} error=${error} />
      <${LineChart} series=${lags} format=${format.duration} height=${170} label="Lag of the last day" empty=${data ? "There is no history yet: it has a sample for each minute" : "Loading …"} />
      ${lags.length > 1 && html`<${Legend} series=${lags} />`}
    </${Card}>
    <${Card} title="Memory" aside=${html`<span class="dim">since the page was opened</span>`}>
      <${LineChart} series=${memory} format=${format.bytes} height=${170} label="Memory over time" empty="Nothing is kept in memory, or measuring" />
      ${memory.length > 1 && html`<${Legend} series=${memory} />`}
    </${Card}>
  </div>`;
}

const lagOf = (interval) => {
  const ms = format.intervalMs(interval);
  return ms === null ? interval ?? "–" : format.duration(ms);
};

function Freshness({ object, keepers }) {
  const text = `EXPLAIN FRESHNESS FOR ${keywordOf(object.type)} ${nameOf(object)}`;
  const { data, error } = usePoll(() => rows(text), 2000, text);
  if (!data) return error ? html`<${Failure} error=${error} />` : html`<${Loading} />`;
  const columns = [
    { label: "Object", value: (r) => r.object },
    { label: "Type", value: (r) => r.type },
    { label: "State", value: (r) => html`<${State} state=${r.state} />` },
    { label: "Behind the clock", kind: "number", value: (r) => lagOf(r.wallclock_lag) },
    { label: "Adds", kind: "number", value: (r) => lagOf(r.own_lag) },
    { label: "", hidden: "Delays it", value: (r) => (r.culprit ? html`<${Badge} kind="waiting">delays</${Badge}>` : "") },
    { label: "Reason", value: (r) => r.reason || "" },
  ];
  return html`<${Card} title="What it waits for, down to the tables" aside=${html`<code class="dim">EXPLAIN FRESHNESS</code>`} flush><${Table} columns=${columns} rows=${data} rowKey=${(r) => r.object} label="Freshness" /></${Card}>
    ${keepers.length > 0 && html`<${History} keepers=${keepers} />`}`;
}

function Rights({ object }) {
  const { data, error } = useAnswer(
    () => rows(
      `SELECT grantee, privilege_type, grantor FROM mz_internal.mz_show_privileges
       WHERE name = $1 AND schema = $2 AND database = $3 ORDER BY grantee, privilege_type`,
      [object.name, object.schema_name, object.database_name],
    ),
    object.id,
  );
  if (!data) return error ? html`<${Failure} error=${error} />` : html`<${Loading} />`;
  const grantees = new Map();
  for (const right of data) grantees.set(right.grantee, [...(grantees.get(right.grantee) || []), right]);
  const columns = [
    { label: "Role", value: ([grantee]) => html`<b>${grantee}</b>` },
    { label: "May", value: ([, rights]) => rights.map((right) => html`<${Badge} key=${right.privilege_type} title=${`granted by ${right.grantor}`}>${right.privilege_type}</${Badge}> `) },
  ];
  return html`<${Card} title="Rights" aside=${html`<span class="dim">owner ${object.owner}</span>`} flush>
    <${Table} columns=${columns} rows=${[...grantees]} rowKey=${([grantee]) => grantee} label="Rights" empty=${`Nothing is granted: only ${quoteName(object.owner || "")} and superusers may use it.`} />
  </${Card}>`;
}
