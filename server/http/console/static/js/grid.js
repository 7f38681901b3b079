// A table of many rows: only those in view are in the page. Arrow keys move, Enter shows a value
// whole, Ctrl-C copies it.

import { html, useEffect, useLayoutEffect, useRef, useState } from "../vendor/htm/preact.js";
import { cell, isNumber, typeName } from "./format.js";
import { CopyButton, Dialog } from "./ui.js";

const ROW = 28;
const HEAD = 46;
const BEYOND = 12; // rows above and below what is seen
const SAMPLE = 100;
const SHOWN = 400; // characters of a value in its cell

function widthsOf(columns, rows) {
  return columns.map((column, i) => {
    let most = Math.max(column.name.length * 1.1 + 1, typeName(column.type_oid).length * 0.85);
    for (let r = 0; r < Math.min(rows.length, SAMPLE); r += 1) {
      const text = cell(rows[r][i]);
      if (text !== null) most = Math.max(most, Math.min(text.length, 60));
    }
    return Math.round(Math.min(420, Math.max(64, most * 7.6 + 26)));
  });
}

/** columns: [{name, type_oid}]; rows: arrays; `version` changes when rows do. */
export function Grid({ columns, rows, version, label = "Rows" }) {
  const box = useRef(null);
  const [view, setView] = useState({ top: 0, height: 400 });
  const [at, setAt] = useState([0, 0]);
  const [open, setOpen] = useState(null);
  const [resized, setResized] = useState({});
  const widths = useRef({ key: null });
  const key = columns.map((c) => c.name).join("\u0000") + "|" + (rows.length > 0 ? Math.min(rows.length, SAMPLE) : 0);
  if (widths.current.key !== key) widths.current = { key, list: widthsOf(columns, rows) };

  useLayoutEffect(() => {
    const element = box.current;
    const update = () => setView({ top: element.scrollTop, height: element.clientHeight });
    update();
    element.addEventListener("scroll", update, { passive: true });
    const watch = new ResizeObserver(update);
    watch.observe(element);
    return () => {
      element.removeEventListener("scroll", update);
      watch.disconnect();
    };
  }, []);
  useEffect(() => {
    setAt([0, 0]);
    setResized({});
    box.current.scrollTop = 0;
    box.current.scrollLeft = 0;
  }, [columns]);

  const first = Math.max(0, Math.min(rows.length, Math.floor(view.top / ROW)) - BEYOND);
  const last = Math.min(rows.length, Math.ceil((view.top + view.height) / ROW) + BEYOND);
  const list = widths.current.list.map((width, i) => resized[i] || width);
  const move = (row, column) => {
    const to = [Math.max(0, Math.min(rows.length - 1, row)), Math.max(0, Math.min(columns.length - 1, column))];
    setAt(to);
    const [up, down] = [to[0] * ROW, (to[0] + 1) * ROW + HEAD];
    if (up < box.current.scrollTop) box.current.scrollTop = up;
    else if (down > box.current.scrollTop + view.height) box.current.scrollTop = down - view.height;
  };
  const keys = (event) => {
    const page = Math.max(1, Math.floor(view.height / ROW) - 2);
    const steps = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1], PageDown: [page, 0], PageUp: [-page, 0] };
    const step = steps[event.key];
    if (step) move(at[0] + step[0], at[1] + step[1]);
    else if (event.key === "Home") move(event.ctrlKey ? 0 : at[0], 0);
    else if (event.key === "End") move(event.ctrlKey ? rows.length - 1 : at[0], columns.length - 1);
    else if (event.key === "Enter" && rows[at[0]]) setOpen(at);
    else if (event.key === "c" && (event.ctrlKey || event.metaKey) && rows[at[0]] && getSelection().isCollapsed) {
      navigator.clipboard?.writeText(cell(rows[at[0]][at[1]]) ?? "");
    } else return;
    event.preventDefault();
  };

  return html`<div class="grid-box" ref=${box} tabindex="0" role="grid" aria-label=${label} aria-rowcount=${rows.length + 1}
    aria-colcount=${columns.length} data-version=${version} onKeyDown=${keys}>
    <table class="grid" style=${{ width: list.reduce((a, b) => a + b, 0) + "px" }}>
      <colgroup>${list.map((width) => html`<col style=${{ width: width + "px" }} />`)}</colgroup>
      <thead><tr>${columns.map((column, i) => html`<th scope="col" class=${isNumber(column.type_oid) ? "number" : ""} title=${column.name}>
        <span class="name">${column.name}</span><span class="type">${typeName(column.type_oid)}</span>
        <${Handle} width=${list[i]} onWidth=${(width) => setResized({ ...resized, [i]: width })} />
      </th>`)}</tr></thead>
      <tbody>
        ${first > 0 && html`<tr key="above" aria-hidden="true"><td class="space" style=${{ height: first * ROW + "px" }}></td></tr>`}
        ${rows.slice(first, last).map((row, i) => html`<tr key=${first + i} aria-rowindex=${first + i + 2} class=${row.diff < 0 ? "gone" : row.fresh ? "fresh" : ""}>
          ${columns.map((column, j) => html`<${Cell} value=${row[j]} column=${column} on=${at[0] === first + i && at[1] === j}
            onClick=${() => setAt([first + i, j])} onOpen=${() => setOpen([first + i, j])} />`)}
        </tr>`)}
        ${last < rows.length && html`<tr key="below" aria-hidden="true"><td class="space" style=${{ height: (rows.length - last) * ROW + "px" }}></td></tr>`}
      </tbody>
    </table>
    ${open && rows[open[0]] && html`<${Value} column=${columns[open[1]]} value=${rows[open[0]][open[1]]} onClose=${() => setOpen(null)} />`}
  </div>`;
}

function Cell({ value, column, on, onClick, onOpen }) {
  const text = cell(value);
  const kind = isNumber(column.type_oid) ? "number" : "";
  const shown = text === null ? "NULL" : text.length > SHOWN ? text.slice(0, SHOWN) + "…" : text;
  return html`<td role="gridcell" class=${kind + (text === null ? " null" : "") + (on ? " on" : "")} onClick=${onClick} onDblClick=${onOpen}>${shown}</td>`;
}

function Handle({ width, onWidth }) {
  const start = (event) => {
    event.preventDefault();
    const from = event.clientX;
    const move = (moved) => onWidth(Math.max(40, width + moved.clientX - from));
    const end = () => {
      window.removeEventListener("mousemove", move);
      window.removeEventListener("mouseup", end);
    };
    window.addEventListener("mousemove", move);
    window.addEventListener("mouseup", end);
  };
  return html`<i class="handle" onMouseDown=${start}></i>`;
}

function Value({ column, value, onClose }) {
  const text = cell(value);
  const pretty = value !== null && typeof value === "object" ? JSON.stringify(value, null, 2) : text;
  return html`<${Dialog} title=${column.name} onClose=${onClose} actions=${text !== null && html`<${CopyButton} text=${text} />`}>
    <p class="dim">${typeName(column.type_oid)}</p>
    <pre class="value">${pretty ?? "NULL"}</pre>
  </${Dialog}>`;
}
