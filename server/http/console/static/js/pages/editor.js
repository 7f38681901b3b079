// The SQL editor: statements above, what came of them below, the history beside.

import { html, useEffect, useLayoutEffect, useRef, useState } from "../../vendor/htm/preact.js";
import "../../vendor/codemirror/codemirror.js";
import "../../vendor/codemirror/show-hint.js";
import "../../vendor/codemirror/matchbrackets.js";
import "../../vendor/codemirror/closebrackets.js";
import "../../vendor/codemirror/comment.js";
import "../../vendor/codemirror/placeholder.js";
import { complete } from "../completion.js";
import * as format from "../format.js";
import { link } from "../router.js";
import { runs } from "../runs.js";
import { formattedAll } from "../sql_format.js";
import { MODE, statementAt, statementsOf } from "../sql_text.js";
import { load, save } from "../storage.js";
import { Badge, CopyButton, Icon } from "../ui.js";
import { Past } from "./past.js";
import { Results } from "./results.js";

export function useRuns() {
  const [, setVersion] = useState(0);
  useEffect(() => {
    setVersion(runs.version);
    return runs.subscribe(setVersion);
  }, []);
  return runs;
}

export function Editor({ route }) {
  const state = useRuns();
  const editor = useRef(null);
  const [beside, setBeside] = useState(load("history-open", false));
  const [height, setHeight] = useState(load("editor-height", 240));
  useEffect(() => {
    document.title = "SQL · Foreshore";
  }, []);
  const asked = route.query.get("q");
  useEffect(() => {
    if (asked === null) return;
    // A link brings a statement into the editor; it runs only when somebody says so.
    editor.current.setValue(asked);
    history.replaceState(null, "", link("sql"));
  }, [asked]);
  const run = () => {
    const selected = editor.current.getSelection();
    const start = selected ? editor.current.indexFromPos(editor.current.getCursor("from")) : 0;
    runs.run(selected || editor.current.getValue(), start);
  };
  // The editor has these keys itself; here they work wherever the focus is, as on a button.
  const latest = useRef(run);
  latest.current = run;
  useEffect(() => {
    const keys = (event) => {
      if (!(event.ctrlKey || event.metaKey) || event.defaultPrevented || event.target.closest?.(".CodeMirror, dialog")) return;
      if (event.key === "." && runs.running) runs.cancel();
      else if (event.key === "Enter" && !event.shiftKey && !event.altKey) latest.current();
      else return;
      event.preventDefault();
    };
    window.addEventListener("keydown", keys);
    return () => window.removeEventListener("keydown", keys);
  }, []);
  /** The statement at the cursor, or what is selected. */
  const one = () => {
    const selected = editor.current.getSelection();
    if (selected) return { text: selected, start: editor.current.indexFromPos(editor.current.getCursor("from")) };
    return statementAt(editor.current.getValue(), editor.current.indexFromPos(editor.current.getCursor()));
  };
  const runOne = () => {
    const found = one();
    if (found) runs.run(found.text, found.start);
  };
  const explain = () => {
    const found = one();
    if (!found) return;
    runs.run(found.text, found.start, /^explain\b/i.test(found.text) ? "" : "EXPLAIN ");
  };
  /** Put all statements, or those that are selected, into lines. */
  const format = () => {
    const cm = editor.current;
    const [from, to] = cm.somethingSelected() ? [cm.getCursor("from"), cm.getCursor("to")] : [{ line: 0, ch: 0 }, { line: cm.lastLine() }];
    const before = cm.getRange(from, to);
    const after = formattedAll(before, statementsOf(before));
    const at = cm.getRange(from, cm.getCursor()).replace(/\s/g, "").length; // letters before the cursor
    if (after !== before) cm.replaceRange(after, from, to);
    const behind = [...after.matchAll(/\S/g)][at]?.index ?? after.length;
    cm.setCursor(cm.posFromIndex(cm.indexFromPos(from) + behind));
    cm.focus();
  };
  /** Go to where an error is. */
  const show = ({ at }) => {
    editor.current.setCursor(editor.current.posFromIndex(at));
    editor.current.focus();
  };
  const toggle = () => {
    save("history-open", !beside);
    setBeside(!beside);
  };
  return html`<section class="page editor-page">
    <h1 class="hidden">SQL editor</h1>
    <div class="editor-bar">
      ${state.running
        ? html`<button class="danger" onClick=${() => runs.cancel()} title="Ctrl ."><${Icon} name="stop" /> Cancel</button>`
        : html`<button class="primary" onClick=${run} title="Ctrl Enter"><${Icon} name="play" /> Run</button>`}
      <button class="small ghost" disabled=${state.running !== null} onClick=${runOne} title="Run the statement at the cursor (Ctrl Shift Enter)"><${Icon} name="play" size="14" /> Statement</button>
      <button class="small ghost" disabled=${state.running !== null} onClick=${explain} title="Draw the plan of the statement at the cursor"><${Icon} name="clusters" size="14" /> Explain</button>
      <button class="small ghost" onClick=${format} title="Put the statements into lines (Shift Alt F)"><${Icon} name="index" size="14" /> Format</button>
      <${Status} state=${state} />
      <div class="rest"></div>
      ${state.transaction !== "I" && html`<${Badge} kind=${state.transaction === "E" ? "dot bad" : "dot waiting"}>${state.transaction === "E" ? "failed transaction" : "in a transaction"}</${Badge}>`}
      ${state.lost && html`<${Badge} kind="dot bad" title=${`${state.lost.message} Its ${state.lost.open ? "transaction, " : ""}settings and temporary tables are gone; what is run next begins a new session.`}>session lost${state.lost.open ? ": the transaction was rolled back" : ""}</${Badge}>`}
      <button class="small ghost" onClick=${() => runs.renew()} title="Begin a new session: its transaction, settings and temporary tables go">New session</button>
      <${CopyButton} label="Copy link" text=${new URL(link("sql", [], { q: state.text }), location.href).href} />
      <button class="small ghost" aria-pressed=${beside} onClick=${toggle}><${Icon} name="history" size="14" /> Saved and history</button>
    </div>
    <div class="editor-body">
      <div class="editor-main">
        <div class="editor-text" style=${{ height: height + "px" }}><${Text} editor=${editor} onRun=${run} onRunOne=${runOne} onFormat=${format} error=${state.error} /></div>
        <${Divider} height=${height} onHeight=${(to) => { setHeight(to); save("editor-height", to); }} />
        <${Results} state=${state} onShow=${show} />
      </div>
      ${beside && html`<${Past} state=${state} onChoose=${(text) => { editor.current.setValue(text); editor.current.focus(); }} />`}
    </div>
  </section>`;
}

function Status({ state }) {
  const [, tick] = useState(0);
  useEffect(() => {
    if (!state.running) return undefined;
    const timer = setInterval(() => tick(performance.now()), 100);
    return () => clearInterval(timer);
  }, [state.running]);
  if (state.running) return html`<span class="dim" role="status">Running for ${format.duration(performance.now() - state.running.began)}</span>`;
  if (state.took === null) return html`<span class="dim"><kbd>Ctrl Enter</kbd> runs all, or what is selected</span>`;
  return html`<span class="dim" role="status" data-testid="took">${state.cancelled ? "Cancelled after" : state.error ? "Failed after" : "Done in"} ${format.duration(state.took)}</span>`;
}

function Text({ editor, onRun, onRunOne, onFormat, error }) {
  const place = useRef(null);
  const latest = useRef({});
  latest.current = { onRun, onRunOne, onFormat };
  useLayoutEffect(() => {
    const made = window.CodeMirror(place.current, {
      value: runs.text, mode: MODE, lineNumbers: true, matchBrackets: true, autoCloseBrackets: true, indentUnit: 2, lineWrapping: false,
      placeholder: "SELECT …", screenReaderLabel: "SQL statements", spellcheck: false, viewportMargin: 50,
      hintOptions: { hint: complete, completeSingle: false },
      extraKeys: {
        "Ctrl-Enter": () => latest.current.onRun(), "Cmd-Enter": () => latest.current.onRun(),
        "Shift-Ctrl-Enter": () => latest.current.onRunOne(), "Shift-Cmd-Enter": () => latest.current.onRunOne(), "Ctrl-.": () => runs.cancel(), "Cmd-.": () => runs.cancel(),
        "Shift-Alt-F": () => latest.current.onFormat(), "Ctrl-Space": "autocomplete", "Ctrl-/": "toggleComment", "Cmd-/": "toggleComment",
        Tab: (cm) => (cm.somethingSelected() ? cm.indentSelection("add") : cm.replaceSelection("  ")), "Shift-Tab": "indentLess",
        Esc: (cm) => cm.getInputField().blur(), // so that Tab leaves the editor
      },
    });
    made.on("change", (cm) => runs.setText(cm.getValue()));
    made.on("inputRead", (cm, change) => {
      if (!cm.state.completionActive && /^[\w.]$/.test(change.text[0]) && change.origin === "+input") cm.showHint({ typed: true });
    });
    editor.current = made;
    made.focus();
    const watch = new ResizeObserver(() => made.refresh());
    watch.observe(place.current);
    return () => watch.disconnect();
  }, []);
  useEffect(() => mark(editor.current, error), [error]);
  return html`<div class="code" ref=${place}></div>`;
}

/** Underline the word at which an error is, or mark the line of its statement; returns what takes the mark away. */
function mark(editor, error) {
  if (error?.at === undefined) return undefined;
  const all = editor.getValue();
  if (all.slice(error.offset, error.offset + error.text.length) !== error.text) return undefined; // edited since
  const start = error.at;
  const word = /^("(?:[^"]|"")*"?|'(?:[^']|'')*'?|[\w$]+|\S)/.exec(all.slice(start))?.[0] || " ";
  const marked = error.exact && editor.markText(editor.posFromIndex(start), editor.posFromIndex(start + word.length), {
    className: "sql-error", attributes: { title: error.fields.message }, clearOnEnter: false,
  });
  const line = editor.posFromIndex(start).line;
  editor.addLineClass(line, "gutter", "sql-error-line");
  editor.scrollIntoView({ line, ch: 0 }, 40);
  return () => {
    if (marked) marked.clear();
    editor.removeLineClass(line, "gutter", "sql-error-line");
  };
}

function Divider({ height, onHeight }) {
  const start = (event) => {
    event.preventDefault();
    const from = event.clientY;
    const move = (moved) => onHeight(Math.max(80, Math.min(innerHeight - 200, height + moved.clientY - from)));
    const end = () => {
      window.removeEventListener("mousemove", move);
      window.removeEventListener("mouseup", end);
    };
    window.addEventListener("mousemove", move);
    window.addEventListener("mouseup", end);
  };
  const keys = (event) => {
    const step = { ArrowUp: -20, ArrowDown: 20 }[event.key];
    if (step) onHeight(Math.max(80, height + step));
  };
  return html`<div class="divider" role="separator" aria-orientation="horizontal" aria-label="Height of the editor" aria-valuenow=${height} tabindex="0" onMouseDown=${start} onKeyDown=${keys}></div>`;
}
