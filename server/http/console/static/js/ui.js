// The parts that pages are made of. Text goes into the page as text nodes only, never as markup.

import { html, useEffect, useRef, useState } from "../vendor/htm/preact.js";
import { pieces } from "./sql_text.js";
import { setQuery } from "./router.js";

const ICONS = {
  overview: "M3 13l4-5 4 3 6-7M3 17h14",
  sql: "M4 5l5 5-5 5M10 15h6",
  objects: "M10 3c4 0 6 1.2 6 2.5S14 8 10 8 4 6.8 4 5.5 6 3 10 3zM4 5.5v9C4 15.8 6 17 10 17s6-1.2 6-2.5v-9M4 10c0 1.3 2 2.5 6 2.5s6-1.2 6-2.5",
  clusters: "M3 4h14v5H3zM3 11h14v5H3zM6 6.5h.01M6 13.5h.01",
  sessions: "M10 10a3 3 0 100-6 3 3 0 000 6zM4 17c0-3.3 2.7-5 6-5s6 1.7 6 5",
  connections: "M7 13l6-6M6 9l-2 2a3.5 3.5 0 005 5l2-2M14 11l2-2a3.5 3.5 0 00-5-5L9 6",
  roles: "M7 9a2.5 2.5 0 100-5 2.5 2.5 0 000 5zM2 16c0-3 2-4.5 5-4.5s5 1.5 5 4.5M13 9a2 2 0 100-4M14.5 11.5c2 .4 3.5 1.8 3.5 4.5",
  secret: "M6 9V7a4 4 0 018 0v2M5 9h10v7H5zM10 12v2",
  history: "M10 5v5l3 2M4.5 6.5A7 7 0 113 10M4 3v4h4",
  play: "M6 4l10 6-10 6z",
  stop: "M5 5h10v10H5z",
  download: "M10 3v9M6 9l4 4 4-4M4 16h12",
  search: "M9 14A5 5 0 109 4a5 5 0 000 10zM13 13l4 4",
  close: "M5 5l10 10M15 5L5 15",
  copy: "M7 7h9v9H7zM4 13V4h9",
  theme: "M10 3a7 7 0 100 14zM10 3a7 7 0 010 14",
  out: "M12 4h4v12h-4M8 7l-4 3 4 3M4 10h8",
  plug: "M7 3v4M13 3v4M5 7h10v3a5 5 0 01-10 0zM10 15v3",
  chart: "M4 16V9M8 16V5M12 16v-5M16 16V7",
  table: "M3 4h14v12H3zM3 8h14M8 8v8",
  right: "M8 5l5 5-5 5",
  fit: "M4 8V4h4M16 8V4h-4M4 12v4h4M16 12v4h-4",
  view: "M2 10s3-5 8-5 8 5 8 5-3 5-8 5-8-5-8-5zM10 12a2 2 0 100-4 2 2 0 000 4z",
  "materialized-view": "M3 10l7-6 7 6-7 6zM10 4v12",
  index: "M4 5h12M4 10h8M4 15h5",
  source: "M3 10h9M9 6l4 4-4 4M16 4v12",
  sink: "M4 4v12M7 10h9M13 6l4 4-4 4",
  connection: "M7 13l6-6M6 9l-2 2a3.5 3.5 0 005 5l2-2M14 11l2-2a3.5 3.5 0 00-5-5L9 6",
  other: "M10 6a4 4 0 100 8 4 4 0 000-8z",
};

export function Icon({ name, size = 16 }) {
  return html`<svg class="icon" viewBox="0 0 20 20" width=${size} height=${size} aria-hidden="true">
    <path d=${ICONS[name] || ICONS.other} />
  </svg>`;
}

export function Badge({ kind = "", children, title }) {
  return html`<span class=${"badge " + kind} title=${title}>${children}</span>`;
}

const GOOD = new Set(["running", "online", "ready", "success", "active", "live"]);
const BAD = new Set(["failing", "failed", "stalled", "damaged", "error", "offline", "not-ready", "oom-killed", "aborted", "crashed"]);
const WAITING = new Set(["hydrating", "starting", "pending", "waiting", "paused", "behind", "idle in transaction", "canceled", "ceased", "created"]);

export function stateKind(state) {
  if (GOOD.has(state)) return "good";
  if (BAD.has(state) || /fail|error|abort/.test(state || "")) return "bad";
  return WAITING.has(state) ? "waiting" : "";
}

export function State({ state, title }) {
  if (!state) return html`<span class="dim">–</span>`;
  return html`<${Badge} kind=${"dot " + stateKind(state)} title=${title}>${state}</${Badge}>`;
}

/** Which database statements run in; `onChoose` gets the name of another one. */
export function DatabaseChoice({ data, disabled, onChoose }) {
  const here = data.here[0].database;
  return html`<select class="database" aria-label="Database" title=${disabled ? "A statement runs in this database" : "The database that statements run in"} disabled=${disabled} value=${here} onChange=${(e) => onChoose(e.target.value)}>
    ${data.databases.map(({ name }) => html`<option key=${name} value=${name} selected=${name === here}>${name}</option>`)}</select>`;
}

export function Page({ title, actions, children, wide }) {
  useEffect(() => {
    document.title = (typeof title === "string" ? title + " · " : "") + "Foreshore";
  }, [title]);
  return html`<section class=${"page" + (wide ? " wide" : "")}>
    <header class="page-head"><h1>${title}</h1><div class="actions">${actions}</div></header>
    ${children}
  </section>`;
}

export function Card({ title, aside, children, flush }) {
  return html`<section class=${"card" + (flush ? " flush" : "")}>
    ${title && html`<header><h2>${title}</h2><div class="aside">${aside}</div></header>`}
    ${children}
  </section>`;
}

export function Tile({ label, value, note, title }) {
  return html`<div class="tile" title=${title}>
    <div class="label">${label}</div><div class="value">${value}</div><div class="note">${note}</div>
  </div>`;
}

export function Empty({ title, children }) {
  return html`<div class="empty"><strong>${title}</strong>${children && html`<p>${children}</p>`}</div>`;
}

export function Loading() {
  return html`<div class="loading" role="status">Loading …</div>`;
}

/** An error of the server, with its detail, hint and code. */
export function Failure({ error, children }) {
  if (!error) return null;
  const fields = error.fields || { message: error.message };
  return html`<div class="failure" role="alert">
    <strong>${fields.message}</strong>
    ${fields.detail && html`<p>${fields.detail}</p>`}
    ${fields.hint && html`<p class="hint">Hint: ${fields.hint}</p>`}
    ${children}
    ${fields.code && html`<code class="dim">${fields.code}</code>`}
  </div>`;
}

/** Tabs whose choice is in the address, as ?tab=...; tabs is [[id, label, count?]]. */
export function Tabs({ tabs, active, name = "tab" }) {
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = tabs.findIndex(([id]) => id === active);
    const [next] = tabs[(at + step + tabs.length) % tabs.length];
    setQuery({ [name]: next });
    requestAnimationFrame(() => event.target.parentNode?.querySelector("[aria-selected=true]")?.focus());
  };
  const bar = useRef(null);
  useEffect(() => bar.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest", inline: "nearest" }), [active]);
  return html`<div class="tabs" role="tablist" onKeyDown=${move} ref=${bar}>
    ${tabs.map(
      ([id, label, number]) => html`<button key=${id} role="tab" aria-selected=${id === active ? "true" : "false"}
        tabindex=${id === active ? 0 : -1} onClick=${() => setQuery({ [name]: id })}>
        ${label}${number !== undefined && html`<span class="number">${number}</span>`}
      </button>`,
    )}
  </div>`;
}

/** SQL with colours; it scrolls and can be copied. */
export function Sql({ text }) {
  return html`<div class="sql-text">
    <pre tabindex="0"><code>${pieces(text).map(([piece, style]) => (style ? html`<span class=${style}>${piece}</span>` : piece))}</code></pre>
    <${CopyButton} text=${text} />
  </div>`;
}

export function CopyButton({ text, label = "Copy" }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setDone(true);
      setTimeout(() => setDone(false), 1500);
    } catch {
      setDone(false); // the browser forbids it; the text can be selected
    }
  };
  return html`<button class="small ghost copy" onClick=${copy} title=${label}>
    <${Icon} name="copy" size="14" /> ${done ? "Copied" : label}
  </button>`;
}

/** A modal window; Escape closes it and the focus returns to where it was. */
export function Dialog({ title, onClose, children, actions, kind = "" }) {
  const dialog = useRef(null);
  useEffect(() => {
    dialog.current.showModal();
  }, []);
  const outside = (event) => event.target === dialog.current && onClose();
  return html`<dialog ref=${dialog} class=${kind} onCancel=${(e) => { e.preventDefault(); onClose(); }} onMouseDown=${outside}
    aria-label=${title}>
    <div class="dialog-body">
      <header><h2>${title}</h2><button class="ghost small" aria-label="Close" onClick=${onClose}><${Icon} name="close" /></button></header>
      <div class="content">${children}</div>
      ${actions && html`<footer>${actions}</footer>`}
    </div>
  </dialog>`;
}

/** Ask before something that cannot be undone. */
export function Confirm({ title, text, action, onConfirm, onClose }) {
  const buttons = html`<button onClick=${onClose}>Keep it</button>
    <button class="danger" onClick=${() => { onClose(); onConfirm(); }}>${action}</button>`;
  return html`<${Dialog} title=${title} onClose=${onClose} actions=${buttons}>${text}</${Dialog}>`;
}

const ROWS_AT_ONCE = 200;

/** Compare values of a column: NULL last, numbers as numbers. */
function ordered(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return 1;
  if (b === null || b === undefined) return -1;
  return a < b ? -1 : 1;
}

/**
 * A plain table; columns are [{label, value: row => content, kind?: "number" | "code", by?: row => value}].
 * Columns with `by` sort the rows: numbers begin with the greatest. Long tables are shown in parts.
 */
export function Table({ columns, rows: all, rowKey, label, empty = "Nothing here." }) {
  const [most, setMost] = useState(ROWS_AT_ONCE);
  const [order, setOrder] = useState(null); // {label, down}
  if (!all.length) return html`<div class="none">${empty}</div>`;
  const by = order && columns.find((c) => c.label === order.label)?.by;
  const known = (row) => by(row) !== null && by(row) !== undefined;
  const sorted = by ? [...all].sort((a, b) => (order.down && known(a) && known(b) ? -1 : 1) * ordered(by(a), by(b))) : all;
  const rows = sorted.slice(0, most);
  const turn = (c) => setOrder(order?.label !== c.label ? { label: c.label, down: c.kind === "number" } : order.down === (c.kind === "number") ? { label: c.label, down: !order.down } : null);
  return html`<div class="table-scroll"><table class="plain" aria-label=${label}>
    <thead><tr>${columns.map((c) => html`<th key=${c.label} class=${c.kind || ""} scope="col" aria-sort=${by && order.label === c.label ? (order.down ? "descending" : "ascending") : null}>${c.by
      ? html`<button class="sort" onClick=${() => turn(c)}>${c.label}<span aria-hidden="true">${by && order.label === c.label ? (order.down ? " ↓" : " ↑") : ""}</span></button>`
      : c.label || html`<span class="hidden">${c.hidden || "Actions"}</span>`}</th>`)}</tr></thead>
    <tbody>${rows.map(
      (row, i) => html`<tr key=${rowKey ? rowKey(row) : i}>
        ${columns.map((c) => html`<td key=${c.label} class=${c.kind || ""}>${c.value(row)}</td>`)}
      </tr>`,
    )}</tbody>
  </table></div>
  ${all.length > most && html`<div class="none"><button class="small" onClick=${() => setMost(most + ROWS_AT_ONCE)}>Show more</button> ${most} of ${all.length}</div>`}`;
}

export function Field({ label, children }) {
  return html`<div class="field"><dt>${label}</dt><dd>${children ?? "–"}</dd></div>`;
}
