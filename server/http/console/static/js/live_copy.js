// A copy of a subscription's rows: a multiset that each change brings up to date.
//
// Rows of SUBSCRIBE ... WITH (PROGRESS) are [time, progressed, diff, ...values], without PROGRESS
// [time, diff, ...values]. The copy is right at the times between progress rows.

import { isNumber } from "./format.js";

const FRESH_MS = 2000;

export class Copy {
  constructor(columns) {
    const names = columns.map((column) => column.name);
    this.progress = names[1] === "mz_progressed";
    this.diffAt = this.progress ? 2 : 1;
    this.columns = columns.slice(this.diffAt + 1);
    this.rows = new Map(); // text of the values -> {values, copies, at}
    this.changes = 0;
    this.version = 0;
    this.progressed = 0;
    this.dirty = false;
    this.time = null;
  }

  /** Whether columns are those of a subscription that shows single changes. */
  static fits(columns) {
    const names = columns.map((column) => column.name);
    return names[0] === "mz_timestamp" && (names[1] === "mz_diff" || (names[1] === "mz_progressed" && names[2] === "mz_diff"));
  }

  /** Take a row of the stream; returns whether the copy may be shown now. */
  take(row) {
    this.time = row[0];
    if (this.progress && row[1] === true) {
      this.progressed += 1; // the first comes before the rows, the second after them
      return this.dirty || this.progressed === 2;
    }
    const values = row.slice(this.diffAt + 1);
    const diff = Number(row[this.diffAt]);
    const key = JSON.stringify(values);
    const entry = this.rows.get(key);
    const copies = (entry?.copies || 0) + diff;
    if (copies === 0) this.rows.delete(key);
    else this.rows.set(key, { values, copies, at: performance.now() });
    this.changes += 1;
    this.version += 1;
    this.dirty = true;
    return !this.progress;
  }

  /** The rows in the order of their values, each as often as it is there; new ones are `fresh`. */
  sorted(most = 10_000) {
    this.dirty = false;
    const now = performance.now();
    this.firstPaint ??= now;
    const found = [];
    for (const { values, copies, at } of this.rows.values()) {
      const fresh = at > this.firstPaint && now - at < FRESH_MS;
      for (let i = 0; i < copies && found.length < most; i += 1) {
        const row = [...values];
        row.fresh = fresh;
        found.push(row);
      }
    }
    return found.sort((a, b) => this.#compare(a, b));
  }

  #compare(a, b) {
    for (let i = 0; i < a.length; i += 1) {
      if (a[i] === b[i]) continue;
      if (a[i] === null) return 1;
      if (b[i] === null) return -1;
      if (isNumber(this.columns[i].type_oid)) {
        const difference = Number(a[i]) - Number(b[i]);
        if (difference) return difference;
      } else {
        const [x, y] = [String(a[i]), String(b[i])];
        if (x !== y) return x < y ? -1 : 1;
      }
    }
    return 0;
  }
}
