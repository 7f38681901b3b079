// Who is connected and what runs, with cancel and terminate; and the statements that have run.

import { html, useState } from "../../vendor/htm/preact.js";
import { rows, statement } from "../api.js";
import { Legend, LineChart } from "../chart.js";
import * as format from "../format.js";
import { usePoll } from "../poll.js";
import { setQuery, link } from "../router.js";
import { formatted } from "../sql_format.js";
import { statementsOf } from "../sql_text.js";
import { Badge, Card, Confirm, Dialog, Failure, Field, Icon, Loading, Page, Sql, State, Table, Tabs } from "../ui.js";
import { Plan } from "./plan.js";

const SESSIONS = `SELECT pid, usename, datname, application_name, client_addr, state, query, wait_event_type, wait_event,
    backend_start, xact_start, query_start, state_change, clock_timestamp() AS now
  FROM pg_stat_activity WHERE backend_type = 'client backend'`;
const HIDDEN = "<insufficient privilege>"; // the statement of a session that the role may not end
const MOST_STATEMENTS = 500;
const OWN = "foreshore console"; // what this page itself asks

export function Sessions({ route }) {
  const tab = route.query.get("tab") || "sessions";
  return html`<${Page} title="Sessions">
    <${Tabs} tabs=${[["sessions", "Sessions"], ["history", "Statements"]]} active=${tab} />
    ${tab === "history" ? html`<${History} route=${route} />` : html`<${Running} route=${route} />`}
  </${Page}>`;
}

function Running({ route }) {
  const { data, error, refresh } = usePoll(() => rows(SESSIONS), 1000);
  const [ending, setEnding] = useState(null);
  const [failure, setFailure] = useState(null);
  const [said, setSaid] = useState("");
  const all = route.query.get("all") === "1";
  if (!data) return error ? html`<${Failure} error=${error} />` : html`<${Loading} />`;
  const call = async (name, session) => {
    setFailure(null);
    try {
      const result = await statement(`SELECT ${name}($1::text::int)`, [session.pid]);
      const notice = result.notices?.[0]?.message;
      setSaid(result.rows[0][0] ? `${name === "pg_cancel_backend" ? "Cancelled" : "Ended"} session ${session.pid}.` : notice || "The session has ended already.");
    } catch (caught) {
      setFailure(caught);
    }
    refresh();
  };
  const since = (session) => {
    const [now, start] = [format.moment(session.now), format.moment(session.state === "active" ? session.query_start : session.state_change)];
    return now && start ? Math.max(0, now - start) : null;
  };
  const shown = data
    .filter((session) => all || session.application_name !== OWN)
    .sort((a, b) => (b.state === "active") - (a.state === "active") || (since(b) ?? 0) - (since(a) ?? 0));
  const columns = [
    { label: "Session", value: (s) => s.pid },
    { label: "Role", value: (s) => html`${s.usename}<small class="dim"> ${s.datname}</small>` },
    { label: "Client", value: (s) => html`${s.application_name || html`<span class="dim">unnamed</span>`}<small class="dim"> ${s.client_addr || ""}</small>` },
    { label: "State", value: (s) => html`<${State} state=${s.state} />${s.wait_event && html` <${Badge} title="waits for">${s.wait_event}</${Badge}>`}` },
    { label: "For", kind: "number", value: (s) => format.duration(since(s)) },
    { label: "Statement", kind: "code", value: (s) => html`<span title=${s.query}>${s.query}</span>` },
    { label: "", kind: "buttons", value: (s) => html`
        <button class="small" disabled=${s.state !== "active" || s.query === HIDDEN} onClick=${() => call("pg_cancel_backend", s)} aria-label=${`Cancel the statement of session ${s.pid}`}>Cancel</button>
        <button class="small ghost danger-text" disabled=${s.query === HIDDEN} onClick=${() => setEnding(s)} aria-label=${`End session ${s.pid}`}>End</button>` },
  ];
  const active = data.filter((s) => s.state === "active" && s.application_name !== OWN).length;
  const aside = html`<span class="dim" role="status">${said}</span>
    <label class="check"><input type="checkbox" checked=${all} onChange=${(e) => setQuery({ all: e.target.checked ? "1" : "" })} /> This page's own</label>`;
  return html`
    <${Failure} error=${failure || (error && !data ? error : null)} />
    <${Card} title=${`${format.count(shown.length)} ${shown.length === 1 ? "session" : "sessions"}, ${active} active`} aside=${aside} flush>
      <${Table} columns=${columns} rows=${shown} rowKey=${(s) => s.pid} label="Sessions" empty="Nobody else is connected." />
    </${Card}>
    ${ending && html`<${Confirm} title=${`End session ${ending.pid}?`} action="End the session" onClose=${() => setEnding(null)}
      text=${html`<p>The connection of <b>${ending.usename}</b> is closed and its transaction rolled back.</p>`}
      onConfirm=${() => call("pg_terminate_backend", ending)} />`}`;
}

function historyQuery(query) {
  const conditions = ["application_name <> $1"];
  const params = [OWN];
  if (query.get("find")) {
    params.push(`%${query.get("find").replace(/[\\%_]/g, "\\$&")}%`);
    conditions.push(`sql ILIKE $${params.length}`);
  }
  if (query.get("only") === "errors") conditions.push("finished_status = 'error'");
  if (query.get("only") === "slow") conditions.push("finished_at - began_at > interval '100 ms'");
  return [
    `SELECT execution_id, application_name, database_name, authenticated_user, connection_id, began_at, finished_at,
       (extract(epoch FROM finished_at - began_at) * 1000)::float8 AS ms, finished_status, sqlstate, error_message, rows_returned, sql
     FROM mz_internal.mz_recent_activity_log WHERE ${conditions.join(" AND ")}
     ORDER BY began_at DESC LIMIT ${MOST_STATEMENTS}`,
    params,
  ];
}

function History({ route }) {
  const [text, params] = historyQuery(route.query);
  const { data, error } = usePoll(() => rows(text, params), 2000, params.join() + text);
  const [open, setOpen] = useState(null);
  const only = route.query.get("only") || "";
  const columns = [
    { label: "Began", value: (s) => format.when(format.moment(s.began_at)) },
    { label: "Took", kind: "number", by: (s) => s.ms, value: (s) => format.duration(s.ms) },
    { label: "Result", value: (s) => html`<${State} state=${s.finished_status || "active"} title=${s.error_message || ""} />` },
    { label: "Rows", kind: "number", by: (s) => (s.rows_returned === null ? null : Number(s.rows_returned)), value: (s) => format.count(s.rows_returned) },
    { label: "Role", value: (s) => html`${s.authenticated_user}<small class="dim"> ${s.application_name}</small>` },
    { label: "Statement", kind: "code", value: (s) => html`<button class="text" title=${s.error_message || s.sql} onClick=${() => setOpen(s)}>${s.sql}</button>` },
  ];
  const find = html`
    <label class="search"><${Icon} name="search" size="14" /><input type="search" placeholder="Text of the statement" aria-label="Find in statements"
      value=${route.query.get("find") || ""} onChange=${(e) => setQuery({ find: e.target.value })} /></label>
    <div class="segments" role="group" aria-label="Which statements">${[["", "All"], ["errors", "Errors"], ["slow", "Over 100 ms"]].map(
      ([id, name]) => html`<button class="small" aria-pressed=${only === id} onClick=${() => setQuery({ only: id })}>${name}</button>`,
    )}</div>`;
  return html`<${Card} title="Statements since the start of the server" aside=${find} flush>
    <${Failure} error=${error} />
    ${data && html`<${Durations} list=${data} />`}
    ${data ? html`<${Table} columns=${columns} rows=${data} rowKey=${(s) => s.execution_id} label="Statements" empty="No statement fits." />` : !error && html`<${Loading} />`}
    ${open && html`<${Statement} of=${open} onClose=${() => setOpen(null)} />`}
  </${Card}>`;
}

/** How long the statements that are listed took, each a dot. */
function Durations({ list }) {
  const points = (failed) => list
    .filter((s) => s.ms !== null && (s.finished_status === "success") !== failed)
    .map((s) => [format.moment(s.began_at)?.getTime(), s.ms])
    .filter(([at]) => at)
    .sort((a, b) => a[0] - b[0]);
  const series = [
    { name: "succeeded", colour: 0, points: points(false) },
    { name: "failed or cancelled", colour: 1, points: points(true) },
  ].filter((one) => one.points.length);
  if (list.length < 2) return null;
  const took = list.map((s) => s.ms).filter((ms) => ms !== null).sort((a, b) => a - b);
  const at = (share) => format.duration(took[Math.min(took.length - 1, Math.floor(took.length * share))]);
  return html`<div class="durations"><${LineChart} series=${series} format=${format.duration} height=${130} label="How long statements took" dots />
    <${Legend} series=${series} />
    <p class="dim">Of these ${format.count(took.length)}: half within ${at(0.5)}, 95 % within ${at(0.95)}, the longest ${at(1)}.</p></div>`;
}

const EXPLAINED = /^\s*(\(|select|with|values|table|insert|update|delete)\b/i;

/** The plans that the statements of a text have now, on demand. */
function Plans({ text }) {
  const parts = statementsOf(text).filter((part) => EXPLAINED.test(part.text));
  return parts.map((part) => html`<${PlanOf} key=${part.start} sql=${part.text} one=${parts.length === 1} />`);
}

function PlanOf({ sql, one }) {
  const [state, setState] = useState(null);
  const run = async () => {
    setState({ busy: true });
    try {
      const result = await statement("EXPLAIN " + sql);
      setState({ lines: result.rows.map(([line]) => line) });
    } catch (error) {
      setState({ error });
    }
  };
  if (!state) return html`<p><button class="small" onClick=${run}>Show its plan</button>${!one && html` <code class="dim">${sql.slice(0, 80)}</code>`}</p>`;
  if (state.error) return html`<${Failure} error=${state.error} />`;
  if (state.busy) return html`<${Loading} />`;
  return html`<h3>Its plan now</h3><${Plan} lines=${state.lines} />
    <details><summary>As text</summary><pre class="value" tabindex="0">${state.lines.join("\n")}</pre></details>`;
}

function Statement({ of, onClose }) {
  const actions = html`<a class="button" href=${link("sql", [], { q: of.sql })} onClick=${onClose}>Open in the editor</a>`;
  return html`<${Dialog} title="Statement" onClose=${onClose} actions=${actions}>
    <${Sql} text=${statementsOf(of.sql).length === 1 ? formatted(of.sql) : of.sql} />
    ${of.error_message && html`<${Failure} error=${{ fields: { message: of.error_message, code: of.sqlstate } }} />`}
    <dl class="fields">
      <${Field} label="Began"><span title=${of.began_at}>${format.when(format.moment(of.began_at))}</span></${Field}><${Field} label="Took">${format.duration(of.ms)}</${Field}>
      <${Field} label="Rows">${format.count(of.rows_returned)}</${Field}><${Field} label="Role">${of.authenticated_user}</${Field}>
      <${Field} label="Session">${of.connection_id}</${Field}><${Field} label="Database">${of.database_name}</${Field}>
    </dl>
    <${Plans} text=${of.sql} />
  </${Dialog}>`;
}
