// A table of many rows and columns: only those in view are in the page. Arrow keys move, with Shift they choose
// a range, as a click with Shift does; Enter shows a value whole, Ctrl-C copies the range.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/htm/preact.js";
import { tsvOf } from "./download.js";
import { cell, isNumber, typeName } from "./format.js";
import { CopyButton, Dialog } from "./ui.js";

const ROW = 28;
const HEAD = 46;
const BEYOND = 12; // rows above and below what is seen
const MOST_COLUMNS = 40; // of more, only those in view are in the page
const SAMPLE = 100; // rows at the beginning whose values make the widths, and as many all over the others
const SHOWN = 400; // characters of a value in its cell

function widthsOf(columns, rows) {
  const every = Math.max(1, Math.floor((rows.length - SAMPLE) / SAMPLE));
  const sampled = rows.filter((_, r) => r < SAMPLE || r === rows.length - 1 || r % every === 0);
  return columns.map((column, i) => {
    let most = Math.max(column.name.length * 1.1 + 1, typeName(column.type_oid).length * 0.85);
    for (const row of sampled) {
      const text = cell(row[i]);
      if (text !== null) most = Math.max(most, Math.min(text.length, 60));
    }
    return Math.round(Math.min(420, Math.max(64, most * 7.6 + 34)));
  });
}

/** The columns that are in view, as [first, behind the last], with some beyond; all, if they are not many. */
function inView(widths, { left, width }) {
  if (widths.length <= MOST_COLUMNS) return [0, widths.length];
  let [first, last, at] = [0, 0, 0];
  for (const [i, each] of widths.entries()) {
    if (at + each < left) first = i + 1;
    if (at < left + width) last = i + 1;
    at += each;
  }
  return [Math.max(0, Math.min(first, widths.length - 1) - 3), Math.min(widths.length, last + 3)];
}

let grids = 0;

/** Compare two values of a column: NULL last, numbers as numbers. */
function compared(a, b, numeric) {
  if (a === null || b === null) return (a === null) - (b === null);
  if (numeric) return Number(a) - Number(b);
  const [x, y] = [cell(a), cell(b)];
  return x === y ? 0 : x < y ? -1 : 1;
}

/** The rows in the order of a column; NULL stays last. */
function sorted(rows, { at, down }, columns) {
  const numeric = isNumber(columns[at].type_oid);
  return [...rows].sort((a, b) => (down && a[at] !== null && b[at] !== null ? -1 : 1) * compared(a[at], b[at], numeric));
}

/** columns: [{name, type_oid}]; rows: arrays; `version` changes when rows do; `whole` says that no more come. */
export function Grid({ columns, rows: given, version, whole = false, label = "Rows" }) {
  const box = useRef(null);
  const [view, setView] = useState({ top: 0, height: 400, left: 0, width: 800 });
  const [at, setAt] = useState([0, 0]);
  const [from, setFrom] = useState(null); // the other corner of the range
  const [order, setOrder] = useState(null); // {at, down}; null: as they came
  const rows = useMemo(() => (order && order.at < columns.length ? sorted(given, order, columns) : given), [given, given.length, version, order, columns]);
  const turn = (i) => setOrder(order?.at !== i ? { at: i, down: false } : order.down ? null : { at: i, down: true });
  const id = useRef(null);
  id.current ??= `grid${(grids += 1)}`;
  const [open, setOpen] = useState(null);
  const [resized, setResized] = useState({});
  const widths = useRef({ key: null });
  const key = columns.map((c) => c.name).join("\u0000") + "|" + Math.ceil(Math.log2(rows.length + 1)) + whole;
  if (widths.current.key !== key) widths.current = { key, list: widthsOf(columns, rows) };

  useLayoutEffect(() => {
    const element = box.current;
    const update = () => setView({ top: element.scrollTop, height: element.clientHeight, left: element.scrollLeft, width: element.clientWidth });
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
    setFrom(null);
    setOrder(null);
    setResized({});
    box.current.scrollTop = 0;
    box.current.scrollLeft = 0;
  }, [columns]);

  const first = Math.max(0, Math.min(rows.length, Math.floor(view.top / ROW)) - BEYOND);
  const last = Math.min(rows.length, Math.ceil((view.top + view.height) / ROW) + BEYOND);
  const list = widths.current.list.map((width, i) => resized[i] || width);
  const [firstColumn, lastColumn] = inView(list, view);
  const seen = columns.map((column, i) => [column, i]).slice(firstColumn, lastColumn);
  const side = (count) => count > 0 && html`<td class="space" colspan=${count} aria-hidden="true"></td>`;
  const [[top, left], [bottom, right]] = from
    ? [[Math.min(at[0], from[0]), Math.min(at[1], from[1])], [Math.max(at[0], from[0]), Math.max(at[1], from[1])]]
    : [at, at];
  const choose = (place, extend) => {
    setFrom(extend ? from || at : null);
    setAt(place);
  };
  const copy = () => {
    const range = from ? tsvOf(rows.slice(top, bottom + 1).map((row) => columns.slice(left, right + 1).map((_, j) => row[left + j]))) : cell(rows[at[0]][at[1]]);
    navigator.clipboard?.writeText(range ?? "");
  };
  const move = (row, column, extend) => {
    const to = [Math.max(0, Math.min(rows.length - 1, row)), Math.max(0, Math.min(columns.length - 1, column))];
    choose(to, extend);
    const [up, down] = [to[0] * ROW, (to[0] + 1) * ROW + HEAD];
    if (up < box.current.scrollTop) box.current.scrollTop = up;
    else if (down > box.current.scrollTop + view.height) box.current.scrollTop = down - view.height;
    const start = list.slice(0, to[1]).reduce((a, b) => a + b, 0);
    if (start < box.current.scrollLeft) box.current.scrollLeft = start;
    else if (start + list[to[1]] > box.current.scrollLeft + view.width) box.current.scrollLeft = start + list[to[1]] - view.width;
  };
  const keys = (event) => {
    const page = Math.max(1, Math.floor(view.height / ROW) - 2);
    const steps = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1], PageDown: [page, 0], PageUp: [-page, 0] };
    const step = steps[event.key];
    const control = event.ctrlKey || event.metaKey;
    if (event.target.closest("dialog")) return;
    if (step) move(at[0] + step[0], at[1] + step[1], event.shiftKey);
    else if (event.key === "Home") move(control ? 0 : at[0], 0, event.shiftKey);
    else if (event.key === "End") move(control ? rows.length - 1 : at[0], columns.length - 1, event.shiftKey);
    else if (event.key === "a" && control && rows.length) {
      setFrom([0, 0]);
      setAt([rows.length - 1, columns.length - 1]);
    } else if (event.key === "s" && !control && rows.length) turn(at[1]);
    else if (event.key === "Escape" && from) setFrom(null);
    else if (event.key === "Enter" && rows[at[0]]) setOpen(at);
    else if (event.key === "c" && control && rows[at[0]] && (from || getSelection().isCollapsed)) copy();
    else return;
    event.preventDefault();
  };

  return html`<div class="grid-box" ref=${box} tabindex="0" role="grid" aria-label=${label} aria-rowcount=${rows.length + 1}
    aria-colcount=${columns.length} aria-multiselectable="true" aria-activedescendant=${rows.length ? `${id.current}-${at[0]}-${at[1]}` : null} data-version=${version} onKeyDown=${keys}>
    <table class="grid" role="none" style=${{ width: list.reduce((a, b) => a + b, 0) + "px" }}>
      <colgroup>${list.map((width) => html`<col style=${{ width: width + "px" }} />`)}</colgroup>
      <thead role="rowgroup"><tr role="row">${side(firstColumn)}${seen.map(([column, i]) => html`<th key=${i} aria-colindex=${i + 1} role="columnheader" scope="col" class=${isNumber(column.type_oid) ? "number" : ""} title=${column.name} aria-sort=${order?.at === i ? (order.down ? "descending" : "ascending") : null}>
        <button class="sort" tabindex="-1" onClick=${() => turn(i)}><span class="name">${column.name}${order?.at === i ? (order.down ? " ↓" : " ↑") : ""}</span><span class="type">${typeName(column.type_oid)}</span></button>
        <${Handle} width=${list[i]} onWidth=${(width) => setResized({ ...resized, [i]: width })} />
      </th>`)}${side(columns.length - lastColumn)}</tr></thead>
      <tbody role="rowgroup">
        ${first > 0 && html`<tr key="above" aria-hidden="true"><td class="space" colspan=${columns.length} style=${{ height: first * ROW + "px" }}></td></tr>`}
        ${rows.slice(first, last).map((row, i) => html`<tr role="row" key=${first + i} aria-rowindex=${first + i + 2} class=${row.diff < 0 ? "gone" : row.fresh ? "fresh" : ""}>
          ${side(firstColumn)}${seen.map(([column, j]) => html`<${Cell} key=${j} id=${`${id.current}-${first + i}-${j}`} value=${row[j]} column=${column} on=${at[0] === first + i && at[1] === j}
            chosen=${from !== null && first + i >= top && first + i <= bottom && j >= left && j <= right}
            onClick=${(event) => choose([first + i, j], event.shiftKey)} onOpen=${() => setOpen([first + i, j])} />`)}${side(columns.length - lastColumn)}
        </tr>`)}
        ${last < rows.length && html`<tr key="below" aria-hidden="true"><td class="space" colspan=${columns.length} style=${{ height: (rows.length - last) * ROW + "px" }}></td></tr>`}
      </tbody>
    </table>
    ${open && rows[open[0]] && html`<${Value} column=${columns[open[1]]} value=${rows[open[0]][open[1]]} onClose=${() => setOpen(null)} />`}
  </div>`;
}

function Cell({ id, value, column, on, chosen, onClick, onOpen }) {
  const text = cell(value);
  const kind = isNumber(column.type_oid) ? "number" : "";
  const shown = text === null ? "NULL" : text.length > SHOWN ? text.slice(0, SHOWN) + "…" : text;
  const keep = (event) => event.shiftKey && event.preventDefault(); // a range of cells, not of letters
  return html`<td id=${id} role="gridcell" aria-selected=${chosen || on ? "true" : null} class=${kind + (text === null ? " null" : "") + (on ? " on" : "") + (chosen ? " chosen" : "")} onMouseDown=${keep} onClick=${onClick} onDblClick=${onOpen}>${shown}</td>`;
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
