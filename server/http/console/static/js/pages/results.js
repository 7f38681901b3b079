// What came of the statements: tables, charts, messages.

import { html, useMemo, useState } from "../../vendor/htm/preact.js";
import { BarChart, COLOURS, Legend, LineChart } from "../chart.js";
import * as format from "../format.js";
import { Grid } from "../grid.js";
import { MOST_ROWS } from "../runs.js";
import { Badge, Failure, Icon } from "../ui.js";

export function Results({ state }) {
  const [chosen, setChosen] = useState({ of: null, at: 0 });
  const { results, messages } = state;
  const at = chosen.of === results ? chosen.at : results.length - 1;
  const choose = (index) => setChosen({ of: results, at: index });
  const result = at >= 0 ? results[Math.min(at, results.length - 1)] : null;
  const shown = at === "messages" || (!result && messages.length) ? null : result;
  return html`<div class="results" aria-label="Results">
    ${(results.length > 1 || (results.length > 0 && messages.length > 0)) && html`<div class="tabs compact" role="tablist">
      ${results.slice(0, 100).map((one, i) => html`<button role="tab" key=${i} aria-selected=${shown === one ? "true" : "false"} onClick=${() => choose(i)}>${i + 1}: ${labelOf(one)}</button>`)}
      ${messages.length > 0 && html`<button role="tab" aria-selected=${!shown ? "true" : "false"} onClick=${() => choose("messages")}>Messages<span class="number">${messages.length}</span></button>`}
    </div>`}
    ${state.error && html`<${Failure} error=${{ fields: state.error.fields }} />`}
    ${shown ? html`<${One} key=${at} result=${shown} version=${state.version} running=${state.running} />` : html`<${Messages} messages=${messages.filter((m) => m.kind === "notice")} />`}
    ${!results.length && !messages.length && !state.running && html`<div class="empty quiet"><p>Results appear here.</p></div>`}
  </div>`;
}

function labelOf(result) {
  if (result.tag) return result.tag;
  return result.streaming ? "SUBSCRIBE" : "running";
}

function Messages({ messages }) {
  return html`<ul class="messages">${messages.map(({ fields }) => html`<li><b>${fields.severity || "notice"}</b> ${fields.message}
    ${fields.detail && html`<div class="dim">${fields.detail}</div>`}${fields.hint && html`<div class="dim">Hint: ${fields.hint}</div>`}</li>`)}</ul>`;
}

function One({ result, version, running }) {
  const [as, setAs] = useState("table");
  const [changes, setChanges] = useState(false);
  if (!result.columns) {
    return html`<div class="result-line"><strong>${result.tag || "Running …"}</strong><span class="dim">${result.ms !== null ? format.duration(result.ms) : ""}</span></div>`;
  }
  const copied = result.copy && !changes;
  const columns = copied ? result.copy.columns : result.columns;
  const rows = copied ? result.copy.sorted() : result.streaming ? [...result.rows].reverse() : result.rows;
  const live = result.streaming && running;
  return html`
    <div class="result-bar">
      ${live && html`<${Badge} kind="dot good">live</${Badge}>`}
      <span class="dim" data-testid="rows">${format.count(rows.length)} ${rows.length === 1 ? "row" : "rows"}${result.streaming ? `, ${format.compact(result.total)} changes` : ""}${!result.streaming && result.total > MOST_ROWS ? ` of ${format.count(result.total)}: the page keeps the first ones` : ""}</span>
      ${result.ms !== null && html`<span class="dim">${format.duration(result.ms)}</span>`}
      <div class="rest"></div>
      ${result.copy && html`<div class="segments" role="group" aria-label="Rows or changes">
        <button class="small" aria-pressed=${!changes} onClick=${() => setChanges(false)}>Rows</button><button class="small" aria-pressed=${changes} onClick=${() => setChanges(true)}>Changes</button></div>`}
      <div class="segments" role="group" aria-label="Table or chart">
        <button class="small" aria-pressed=${as === "table"} onClick=${() => setAs("table")}><${Icon} name="table" size="14" /> Table</button>
        <button class="small" aria-pressed=${as === "chart"} onClick=${() => setAs("chart")}><${Icon} name="chart" size="14" /> Chart</button></div>
      <button class="small ghost" onClick=${() => download(columns, rows)} title="Save the rows shown as CSV">CSV</button>
    </div>
    ${as === "table" ? html`<${Grid} columns=${columns} rows=${rows} version=${version} label="Result" />` : html`<${Chart} columns=${columns} rows=${rows} version=${version} />`}`;
}

function download(columns, rows) {
  const quote = (value) => {
    const text = format.cell(value);
    if (text === null) return "";
    return text === "" || /[",\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
  };
  const lines = [columns.map((c) => quote(c.name)), ...rows.map((row) => row.map(quote))].map((line) => line.join(","));
  const url = URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "text/csv" }));
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = "result.csv";
  anchor.click();
  URL.revokeObjectURL(url);
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
  const content = useMemo(() => plot(shownKind, columns, rows, across, up), [shownKind, across, up.join(), version, rows.length]);
  if (!numeric.length) return html`<div class="none">A chart needs a column of numbers.</div>`;
  const flip = (i) => setYs(up.includes(i) ? up.filter((j) => j !== i) : [...up, i].slice(-COLOURS));
  return html`<div class="chart-box">
    <div class="chart-tools">
      <div class="segments" role="group" aria-label="Kind of chart">${["line", "bar"].map((one) => html`<button class="small" aria-pressed=${shownKind === one} onClick=${() => setKind(one)}>${one === "line" ? "Line" : "Bars"}</button>`)}</div>
      <label class="inline">Across <select value=${across} onChange=${(e) => setX(Number(e.target.value))}>${columns.map((c, i) => html`<option value=${i}>${c.name}</option>`)}</select></label>
      <fieldset class="inline"><legend>Up</legend>${numeric.map((i) => html`<label class="check"><input type="checkbox" checked=${up.includes(i)} onChange=${() => flip(i)} /> ${columns[i].name}</label>`)}</fieldset>
      ${rows.length > MOST_POINTS && html`<span class="dim">the first ${MOST_POINTS} rows</span>`}
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
  const place = (row, at) => (time ? format.moment(row[across])?.getTime() : format.isNumber(columns[across].type_oid) ? number(row[across]) : at);
  const lines = series.map((one) => ({
    ...one,
    points: used.map((row, at) => [place(row, at), number(row[one.index])]).filter(([at]) => Number.isFinite(at)).sort((a, b) => a[0] - b[0]),
  }));
  return html`<${LineChart} series=${lines} time=${time} height=${300} label="Chart of the result" empty="Nothing to draw" /><${Legend} series=${series} />`;
}
