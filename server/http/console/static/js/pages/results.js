// What came of the statements: tables, charts, messages.

import { html, useMemo, useRef, useState } from "../../vendor/htm/preact.js";
import { BarChart, COLOURS, Legend, LineChart, MOST_BARS } from "../chart.js";
import { isRepeatable, saveCsv, saveJson, saveWhole, tsvOf } from "../download.js";
import * as format from "../format.js";
import { Grid } from "../grid.js";
import { isPlan } from "../plan.js";
import { MOST_ROWS } from "../runs.js";
import { Badge, Failure, Icon } from "../ui.js";
import { Plan } from "./plan.js";

export function Results({ state, onShow }) {
  const [chosen, setChosen] = useState({ of: null, at: 0 });
  const { results, messages } = state;
  const at = chosen.of === results ? chosen.at : results.length - 1;
  const choose = (index) => setChosen({ of: results, at: index });
  const result = at >= 0 ? results[Math.min(at, results.length - 1)] : null;
  const shown = at === "messages" || (!result && messages.length) ? null : result;
  return html`<div class="results" aria-label="Results">
    ${(results.length > 1 || (results.length > 0 && messages.length > 0)) && html`<div class="tabs compact" role="tablist">
      ${results.slice(0, 100).map((one, i) => html`<button role="tab" key=${i} aria-selected=${shown === one ? "true" : "false"} onClick=${() => choose(i)}>${i + 1}: ${labelOf(one, state.running)}</button>`)}
      ${messages.length > 0 && html`<button role="tab" aria-selected=${!shown ? "true" : "false"} onClick=${() => choose("messages")}>Messages<span class="number">${messages.length}</span></button>`}
    </div>`}
    ${state.error && html`<${Failure} error=${{ fields: state.error.fields }}><${Where} error=${state.error} onShow=${onShow} /></${Failure}>`}
    ${shown ? html`<${One} key=${at} result=${shown} version=${state.version} running=${state.running} failed=${state.error !== null || state.cancelled} />` : html`<${Messages} messages=${messages.filter((m) => m.kind === "notice")} />`}
    ${!results.length && !messages.length && !state.running && html`<div class="empty quiet"><p>${state.cancelled ? "Cancelled: there is no result." : "Results appear here."}</p></div>`}
  </div>`;
}

/** At which statement and line an error is, and what was undone with it. */
function Where({ error, onShow }) {
  if (error.at === undefined) return null;
  const many = error.of > 1;
  return html`<p class="where"><button class="small" onClick=${() => onShow(error)}>${many ? `Statement ${error.number} of ${error.of}, line ${error.line}` : `Line ${error.line}`}</button>
    ${error.undone.length > 0 && html` Statements that run together are one transaction, so these were rolled back: ${error.undone.join(", ")}.`}</p>`;
}

function labelOf(result, running) {
  if (result.tag) return result.tag;
  return result.streaming ? "SUBSCRIBE" : running ? "running" : "failed";
}

function Messages({ messages }) {
  return html`<ul class="messages">${messages.map(({ fields }) => html`<li><b>${fields.severity || "notice"}</b> ${fields.message}
    ${fields.detail && html`<div class="dim">${fields.detail}</div>`}${fields.hint && html`<div class="dim">Hint: ${fields.hint}</div>`}</li>`)}</ul>`;
}

function One({ result, version, running, failed }) {
  const [as, setAs] = useState(null);
  const [changes, setChanges] = useState(false);
  if (!result.columns) {
    return html`<div class="result-line"><strong>${result.tag || (running ? "Running …" : failed ? "Failed" : "There is no statement in the text.")}</strong><span class="dim">${result.ms !== null ? format.duration(result.ms) : ""}</span></div>`;
  }
  const copied = result.copy && !changes;
  const columns = copied ? result.copy.columns : result.columns;
  const rows = copied ? result.copy.sorted() : result.streaming ? [...result.rows].reverse() : result.rows;
  const live = result.streaming && running;
  const plan = !result.streaming && isPlan(columns, rows);
  const drawable = !plan && columns.some((column) => format.isNumber(column.type_oid));
  const can = { plan, table: true, chart: drawable };
  const shown = as && can[as] ? as : plan ? "plan" : "table"; // what was chosen before may not fit this result
  return html`
    <div class="result-bar">
      ${live && html`<${Badge} kind="dot good">live</${Badge}>`}
      <span class="dim" data-testid="rows">${format.count(rows.length)} ${rows.length === 1 ? "row" : "rows"}${result.streaming ? `, ${format.compact(result.total)} changes` : ""}${!result.streaming && result.total > MOST_ROWS ? ` of ${format.count(result.total)}: the page keeps the first ones` : ""}</span>
      ${result.ms !== null && html`<span class="dim">${format.duration(result.ms)}</span>`}
      <div class="rest"></div>
      ${result.copy && html`<div class="segments" role="group" aria-label="Rows or changes">
        <button class="small" aria-pressed=${!changes} onClick=${() => setChanges(false)}>Rows</button><button class="small" aria-pressed=${changes} onClick=${() => setChanges(true)}>Changes</button></div>`}
      <div class="segments" role="group" aria-label="Table or chart">
        ${plan && html`<button class="small" aria-pressed=${shown === "plan"} onClick=${() => setAs("plan")}><${Icon} name="objects" size="14" /> Picture</button>`}
        <button class="small" aria-pressed=${shown === "table"} onClick=${() => setAs("table")}><${Icon} name="table" size="14" /> Table</button>
        ${!plan && html`<button class="small" disabled=${!drawable} title=${drawable ? null : "A chart needs a column of numbers"} aria-pressed=${shown === "chart"} onClick=${() => setAs("chart")}><${Icon} name="chart" size="14" /> Chart</button>`}</div>
      <${Downloads} result=${result} columns=${columns} rows=${rows} />
    </div>
    ${shown === "plan" ? html`<${Plan} lines=${rows.map(([line]) => line)} />` : shown === "table" ? html`<${Grid} columns=${columns} rows=${rows} version=${version} whole=${result.ms !== null} label="Result" />` : html`<${Chart} key=${columns.map((column) => `${column.name} ${column.type_oid}`).join()} columns=${columns} rows=${rows} version=${version} />`}`;
}

/** A menu of files: what the page has, or all of it from the server. */
function Downloads({ result, columns, rows }) {
  const menu = useRef(null);
  const [busy, setBusy] = useState(null);
  const [error, setError] = useState(null);
  const close = () => menu.current.removeAttribute("open");
  const whole = async (kind) => {
    close();
    setBusy(kind);
    setError(null);
    try {
      await saveWhole(result.text, kind);
    } catch (failure) {
      setError(failure);
    }
    setBusy(null);
  };
  const keys = (event) => event.key === "Escape" && close();
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(tsvOf([columns.map((c) => c.name), ...rows]));
    } catch {
      setError({ message: "The browser does not let this page copy." });
    }
  };
  const kept = [["Copy for a spreadsheet", copy], ["CSV", () => saveCsv(columns, rows)], ["JSON", () => saveJson(columns, rows)]];
  const all = !result.streaming && result.tag && isRepeatable(result.text) ? [["CSV", "csv"], ["Parquet", "parquet"], ["Arrow", "arrow"]] : [];
  return html`<details class="menu" ref=${menu} onKeyDown=${keys}>
    <summary class="button small"><${Icon} name="download" size="14" /> ${busy ? "Saving …" : "Download"}</summary>
    <div class="menu-items">
      <small class="dim">The rows shown</small>
      ${kept.map(([name, run]) => html`<button class="small ghost" key=${name} onClick=${() => { close(); run(); }}>${name}</button>`)}
      ${all.length > 0 && html`<small class="dim" title="With the settings of a new session: search_path and others may differ">All rows: runs it again</small>`}
      ${all.map(([name, kind]) => html`<button class="small ghost" key=${kind} onClick=${() => whole(kind)}>${name}</button>`)}
    </div>
  </details>${error && html`<${Failure} error=${error} />`}`;
}

const MOST_POINTS = 2000;

function Chart({ columns, rows, version }) {
  const numeric = columns.map((c, i) => i).filter((i) => format.isNumber(columns[i].type_oid));
  const first = columns.findIndex((c) => !format.isNumber(c.type_oid));
  const [kind, setKind] = useState(null);
  const [x, setX] = useState(null);
  const [ys, setYs] = useState(null);
  const across = x ?? (first >= 0 ? first : 0);
  const up = (ys ?? numeric.filter((i) => i !== across).slice(0, 1)).filter((i) => i < columns.length);
  const time = format.isTime(columns[across]?.type_oid);
  const shownKind = kind ?? (time || format.isNumber(columns[across]?.type_oid) ? "line" : "bar");
  const most = shownKind === "bar" ? MOST_BARS : MOST_POINTS;
  const content = useMemo(() => plot(shownKind, columns, rows, across, up), [shownKind, across, up.join(), version, rows.length]);
  const flip = (i) => setYs(up.includes(i) ? up.filter((j) => j !== i) : [...up, i].slice(-COLOURS));
  return html`<div class="chart-box">
    <div class="chart-tools">
      <div class="segments" role="group" aria-label="Kind of chart">${["line", "bar"].map((one) => html`<button class="small" aria-pressed=${shownKind === one} onClick=${() => setKind(one)}>${one === "line" ? "Line" : "Bars"}</button>`)}</div>
      <label class="inline">Across <select value=${across} onChange=${(e) => setX(Number(e.target.value))}>${columns.map((c, i) => html`<option value=${i}>${c.name}</option>`)}</select></label>
      <fieldset class="inline"><legend>Up</legend>${numeric.map((i) => html`<label class="check"><input type="checkbox" checked=${up.includes(i)} onChange=${() => flip(i)} /> ${columns[i].name}</label>`)}</fieldset>
      ${rows.length > most && html`<span class="dim">the first ${format.count(most)} rows</span>`}
    </div>
    ${content}
  </div>`;
}

const number = (value) => (value === null || value === "" ? null : Number(value));

function plot(kind, columns, rows, across, up) {
  const used = rows.slice(0, MOST_POINTS);
  const series = up.map((i, j) => ({ name: columns[i].name, index: i, colour: j % COLOURS }));
  if (kind === "bar") {
    const bars = series.map((one) => ({ ...one, values: used.map((row) => number(row[one.index])) }));
    return html`<${BarChart} labels=${used.map((row) => format.cell(row[across]) ?? "NULL")} series=${bars} height=${300} label="Chart of the result" /><${Legend} series=${series} />`;
  }
  const time = format.isTime(columns[across].type_oid);
  const place = (row, at) => (time ? format.wall(row[across])?.getTime() : format.isNumber(columns[across].type_oid) ? number(row[across]) : at);
  const lines = series.map((one) => ({
    ...one,
    points: used.map((row, at) => [place(row, at), number(row[one.index])]).filter(([at]) => Number.isFinite(at)).sort((a, b) => a[0] - b[0]),
  }));
  return html`<${LineChart} series=${lines} time=${time} height=${300} label="Chart of the result" empty="Nothing to draw" /><${Legend} series=${series} />`;
}
