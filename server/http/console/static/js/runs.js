// What the editor runs: one session, its results, and the history that the browser keeps. It lives
// outside of the page, so that a statement goes on while somebody looks at another page.

import { onSignedOut } from "./api.js";
import { catalog } from "./catalog.js";
import { Copy } from "./live_copy.js";
import { Session } from "./socket.js";
import { offsetOf, statementsOf } from "./sql_text.js";
import { load, loadOfTab, onSaved, save, saveOfTab } from "./storage.js";

export const MOST_ROWS = 100_000; // of a result that the page keeps
const MOST_CHANGES = 5_000; // of a subscription: the newest
const MOST_HISTORY = 200;
const LONGEST_KEPT = 20_000;
const PAINT_MS = 100;
const CANCELLED = "57014"; // query_canceled
const MOST_SAVED = 200;
const CONTROL = /^(begin|start|commit|end|rollback|abort)\b/i; // statements that begin or end a transaction block
const READ = /^(SELECT|SHOW|FETCH)\b/; // tags of statements that change nothing
const SECRET = /\b(password|secret|identified)\b/i; // such texts are kept in the tab until somebody signs out

class Result {
  constructor(streaming, began, text = "") {
    this.text = text; // of its statement
    this.streaming = streaming;
    this.began = began;
    this.columns = null;
    this.rows = [];
    this.total = 0;
    this.tag = null;
    this.ms = null;
    this.copy = null;
  }

  setColumns(columns) {
    this.columns = columns;
    if (this.streaming && Copy.fits(columns)) this.copy = new Copy(columns);
  }

  take(row) {
    this.total += 1;
    if (this.copy) {
      this.copy.take(row);
      if (this.copy.progress && row[1] === true) return;
    }
    if (this.streaming) {
      row.diff = this.copy ? Number(row[this.copy.diffAt]) : 1;
      this.rows.push(row);
      if (this.rows.length > MOST_CHANGES * 1.2) this.rows = this.rows.slice(-MOST_CHANGES);
    } else if (this.rows.length < MOST_ROWS) this.rows.push(row);
  }
}

class Runs {
  constructor() {
    this.text = loadOfTab("editor", "SELECT now();");
    this.history = load("history", []);
    this.saved = load("saved", []); // [{name, text}]
    this.lost = null; // why the session before this one ended
    this.running = null; // {text, began, offset}
    this.results = [];
    this.messages = []; // {kind: "notice" | "error" | "lost", fields}
    this.error = null; // of the last run: {fields, offset, text, number, of, at, line, undone}
    this.took = null;
    this.transaction = "I";
    this.version = 0;
    this.listeners = new Set();
    this.timer = null;
    this.session = this.#newSession();
    onSignedOut(() => this.#forget());
    // Other tabs run and keep statements, too.
    for (const name of ["history", "saved"]) onSaved(name, () => this.#set({ [name]: load(name, []) }));
  }

  #newSession() {
    return new Session({
      application: "foreshore console editor",
      onState: (state) => this.#set({ transaction: state }),
      // What runs says itself that it was lost.
      onLost: (message, told) => this.#set({ transaction: "I", lost: told ? null : { message, open: this.transaction !== "I" } }),
    });
  }

  subscribe(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  #set(changes = {}) {
    Object.assign(this, changes);
    this.version += 1;
    if (this.timer === null) {
      this.timer = setTimeout(() => {
        this.timer = null;
        for (const listener of [...this.listeners]) listener(this.version);
      }, this.running ? PAINT_MS : 0);
    }
  }

  setText(text) {
    this.text = text;
    saveOfTab("editor", text.slice(0, LONGEST_KEPT * 10), { own: SECRET.test(text) });
  }

  /** Run `prefix` and `text`, which begins at `offset` in the editor. */
  run(text, offset = 0, prefix = "") {
    if (this.running || !text.trim()) return;
    const began = performance.now();
    this.#set({ running: { text, began, at: Date.now() }, results: [], messages: [], error: null, took: null, asked: false, cancelled: false, lost: null });
    let result = null;
    let last = began;
    const parts = statementsOf(text);
    const textOf = (number) => prefix + (parts[number]?.text || "");
    const single = this.transaction === "I" && !parts.some((part) => CONTROL.test(part.text)); // one transaction for all
    this.session.run(prefix + text, {
      begin: ({ is_streaming: streaming }) => {
        result = new Result(streaming, last, textOf(this.results.length));
        this.results.push(result);
        this.#set();
      },
      columns: (columns) => {
        result.setColumns(columns);
        this.#set();
      },
      rows: (rows) => {
        for (const row of rows) result.take(row);
        this.#set();
      },
      done: (tag) => {
        const now = performance.now();
        if (!result) {
          result = new Result(false, last, textOf(this.results.length));
          this.results.push(result);
        }
        Object.assign(result, { tag, ms: now - result.began });
        last = now;
        result = null;
        this.#set();
      },
      notice: (fields) => this.#set({ messages: [...this.messages, { kind: "notice", fields }].slice(-200) }),
      error: (fields) => {
        if (fields.code === CANCELLED && this.asked) {
          this.#set({ cancelled: true });
          return;
        }
        this.messages.push({ kind: "error", fields });
        const done = this.results.filter((one) => one.tag);
        const position = Number(fields.position) - prefix.length;
        const found = position > 0 ? parts.findIndex(({ end }) => offsetOf(text, position) < end) : done.length;
        const part = parts[found] || parts[parts.length - 1];
        const at = offset + (position > 0 ? offsetOf(text, position) : part?.start || 0);
        const known = position > 0 || parts.length > 1; // that a statement alone is at fault needs no mark
        this.#set({
          error: {
            fields, offset, text, at: known ? at : undefined, number: (found < 0 ? parts.length - 1 : found) + 1, of: parts.length, exact: position > 0,
            line: this.text.slice(0, at).split("\n").length,
            undone: single ? done.filter((one) => !READ.test(one.tag)).map((one) => one.tag) : [],
          },
        });
      },
      ready: () => this.#ended(text, began),
      ended: (message) => {
        this.messages.push({ kind: "lost", fields: { message } });
        this.#set({ error: this.error || { fields: { message }, offset, text }, lost: null });
        this.#ended(text, began);
      },
    });
  }

  #ended(text, began) {
    const took = performance.now() - began;
    for (const result of this.results) result.ms ??= took;
    this.#remember(text, took);
    this.#set({ running: null, took });
    if (/\b(create|drop|alter|comment|grant|revoke)\b/i.test(text)) catalog.refresh();
  }

  #remember(text, took) {
    if (SECRET.test(text) || text.length > LONGEST_KEPT) return;
    const entry = { text, at: Date.now(), ms: took, failed: this.error !== null && !this.cancelled };
    const others = this.history.filter((one) => one.text !== text);
    this.history = [entry, ...others].slice(0, MOST_HISTORY);
    save("history", this.history);
  }

  forgetHistory() {
    this.history = [];
    save("history", []);
    this.#set();
  }

  /** Keep a text under a name, in place of what had the name. */
  keep(name, text) {
    const others = this.saved.filter((one) => one.name !== name);
    this.#set({ saved: [...others, { name, text }].sort((a, b) => a.name.localeCompare(b.name)).slice(0, MOST_SAVED) });
    return save("saved", this.saved);
  }

  drop(name) {
    this.#set({ saved: this.saved.filter((one) => one.name !== name) });
    save("saved", this.saved);
  }

  /** Who signs in next gets neither the session nor the results of the role before, and no secret in the editor. */
  #forget() {
    if (SECRET.test(this.text)) this.setText("");
    this.session.close();
    this.session = this.#newSession();
    this.#set({ running: null, results: [], messages: [], error: null, took: null, cancelled: false, transaction: "I", lost: null });
  }

  cancel() {
    this.asked = true;
    this.session.cancel();
  }

  /** Give up the session: its transaction, its settings and temporary tables go with it. */
  renew() {
    this.session.close();
    this.session = this.#newSession();
    this.#set({ transaction: "I", lost: null });
  }
}

export const runs = new Runs();
