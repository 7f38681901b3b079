/**
 * A local copy of a query's result, kept up to date by the server.
 *
 *     import { live } from "/foreshore.js";
 *     const totals = live("SELECT item, total FROM totals", {
 *       key: "item",
 *       onChange: (copy) => render(copy.rows()),
 *     });
 *     totals.close();
 *
 * The copy always has the result as of one time. Changes are gathered until all of their time have
 * come, and then made together. When the connection breaks, the copy stays as it is until the
 * server sends the changes after it, or, if it has forgotten these, the whole result again.
 *
 * Works in browsers and in Node 18 and later, and needs nothing else.
 */

const FIRST_DELAY_MS = 250; // before the second attempt to connect; it doubles
const LONGEST_DELAY_MS = 10_000;
const SILENCE_MS = 45_000; // the server sends something at least each 15 s
const LONGEST_LINE = 64 << 20; // characters

/** An error of the server: `code` is PostgreSQL's SQLSTATE, `status` that of HTTP if it has one. */
export class ForeshoreError extends Error {
  constructor(fields, status) {
    super(fields.message ?? `HTTP status ${status}`);
    this.name = "ForeshoreError";
    this.code = fields.code;
    this.detail = fields.detail;
    this.hint = fields.hint;
    this.status = status;
  }
}

/**
 * Follow `query` and return its local copy.
 *
 * @param {string} query a query, such as `SELECT * FROM t WHERE a = $1`
 * @param {object} [options]
 * @param {string|string[]} [options.key] the columns that identify a row, for `get`
 * @param {(string|number|bigint|boolean|null|Date|object)[]} [options.params] the values of the
 *     query's parameters
 * @param {object} [options.options] session variables
 * @param {string} [options.url] the server, by default the origin of the page
 * @param {{user: string, password: string} | {token: string}} [options.auth]
 * @param {(copy: Live, change: {time: bigint, changes: object[], reset: boolean}) => void}
 *     [options.onChange] called once for each time at which the result has changed
 * @param {(error: Error) => void} [options.onError] called when a connection fails or ends
 * @param {typeof fetch} [options.fetch]
 */
export function live(query, options = {}) {
  return new Live(query, options);
}

class Live {
  #options;
  #address;
  #stop = new AbortController();
  #columns = [];
  #order = []; // ORDER BY of the query: {column, descending, nulls_first}
  #sorted = null; // the rows in that order, until the next change
  #copies = new Map(); // the text of a row: the row, and how many there are
  #byKey = new Map(); // the text of a key: the row
  #gathered = []; // changes of a time of which more may come
  #isReset = true; // whether what is gathered replaces the copy
  #token = null; // the id of the last progress
  #waiting = []; // what `reached` has returned: {time, resolve, reject}
  #isFinal = false; // whether the result can never change
  #resolve;
  #reject;

  constructor(query, options) {
    this.#options = options;
    this.#address = addressOf(query, options);
    /** The time of the copy, in milliseconds since 1970; null before the first result. */
    this.time = null;
    /** Whether it follows the query; false once it is closed or has failed for good. */
    this.following = true;
    /** Resolved with the copy when the first result is there; rejected if that fails for good. */
    this.ready = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    this.ready.catch(() => {}); // whoever does not wait for it has `onError`
    this.#follow();
  }

  /** The names of the columns. */
  get columns() {
    return this.#columns.map((column) => column.name);
  }

  /** The number of rows. */
  get size() {
    let size = 0;
    for (const { count } of this.#copies.values()) size += count;
    return size;
  }

  /** All rows as arrays of values in the query's order, equal ones as often as they are there. */
  values() {
    if (this.#sorted === null) {
      const found = [];
      for (const { row, count } of this.#copies.values()) {
        for (let copy = 0; copy < count; copy++) found.push(row);
      }
      this.#sorted = sorted(found, this.#order, this.#columns);
    }
    return [...this.#sorted];
  }

  /** All rows as objects with a member for each column. */
  rows() {
    return this.values().map((row) => this.#asObject(row));
  }

  /** The row with these values of the key's columns, undefined if there is none. */
  get(...key) {
    const row = this.#byKey.get(JSON.stringify(key));
    return row && this.#asObject(row);
  }

  /**
   * Resolved with the copy when it has all changes up to a time, such as that of `SELECT mz_now()`
   * after a change of one's own; rejected if the copy stops before.
   */
  reached(time) {
    const wanted = BigInt(time);
    if (this.#isFinal || (this.time !== null && this.time >= wanted)) return Promise.resolve(this);
    if (!this.following) return Promise.reject(new Error("closed"));
    return new Promise((resolve, reject) => this.#waiting.push({ time: wanted, resolve, reject }));
  }

  /** Stop following; the copy stays as it is. */
  close() {
    this.#end(new Error("closed"));
    this.#stop.abort();
  }

  #end(error) {
    this.following = false;
    for (const { reject } of this.#waiting.splice(0)) reject(error);
  }

  #wake() {
    const isReached = ({ time }) => this.#isFinal || this.time >= time;
    const reached = this.#waiting.filter(isReached);
    this.#waiting = this.#waiting.filter((each) => !isReached(each));
    for (const { resolve } of reached) resolve(this);
  }

  // --- the connection

  async #follow() {
    let attempt = 0;
    while (this.following) {
      const before = this.#token;
      try {
        await this.#connect();
      } catch (error) {
        if (!this.following) break;
        this.#tell(error);
        if (isFinal(error)) this.#fail(error);
      }
      if (!this.following) break;
      attempt = this.#token === before ? attempt + 1 : 0;
      await pause(delayOf(attempt), this.#stop.signal);
    }
    this.#reject(new Error("closed"));
  }

  async #connect() {
    const connection = new AbortController();
    const end = () => connection.abort(new Error("the subscription is closed"));
    this.#stop.signal.addEventListener("abort", end, { once: true });
    let silence = null;
    const listen = () => {
      clearTimeout(silence);
      silence = setTimeout(() => connection.abort(new Error("the server is silent")), SILENCE_MS);
    };
    listen();
    try {
      const ask = this.#options.fetch ?? fetch;
      const answer = await ask(this.#address, {
        headers: headersOf(this.#options.auth, this.#token),
        signal: connection.signal,
        cache: "no-store",
      });
      if (!answer.ok) throw await errorOf(answer);
      this.#gathered = [];
      this.#isReset = this.#token === null;
      for await (const event of eventsOf(answer.body, connection.signal, listen)) {
        this.#take(event);
        if (!this.following) return;
      }
    } finally {
      clearTimeout(silence);
      this.#stop.signal.removeEventListener("abort", end);
      connection.abort(); // of an answer that was not read to its end
    }
    if (this.following) throw new Error("the connection has ended");
  }

  // --- the events

  #take({ name, id, data }) {
    switch (name) {
      case "rows": {
        const { desc, rows } = JSON.parse(data);
        if (desc) {
          this.#order = desc.order ?? [];
          this.#describe(desc.columns);
        }
        for (const change of rows) this.#gathered.push(change);
        break;
      }
      case "progress":
        this.#token = id;
        this.#apply(BigInt(JSON.parse(data).time));
        this.#wake();
        break;
      case "reset":
        this.#gathered = [];
        this.#isReset = true;
        this.#token = null;
        break;
      case "error":
        throw new ForeshoreError(JSON.parse(data));
      case "end": // it can never change
        this.#isFinal = true;
        this.#wake();
        this.close();
        break;
    }
  }

  #describe(columns) {
    this.#columns = columns;
    this.#sorted = null;
    for (const name of this.#keyNames()) {
      if (!columns.some((column) => column.name === name)) {
        throw new ForeshoreError({ code: "42703", message: `column "${name}" does not exist` }, 400);
      }
    }
  }

  /** Make the gathered changes, all at once. */
  #apply(time) {
    const changes = this.#gathered;
    const reset = this.#isReset;
    this.#gathered = [];
    this.#isReset = false;
    this.time = time;
    if (reset || changes.length > 0) this.#sorted = null;
    if (reset) {
      this.#copies.clear();
      this.#byKey.clear();
    }
    // Deletions come first: a row that takes a key over must not be lost with its predecessor.
    for (const [count, row] of changes) if (count < 0) this.#add(count, row);
    for (const [count, row] of changes) if (count > 0) this.#add(count, row);
    if (!reset && changes.length === 0) return;
    this.#resolve(this);
    const shown = changes.map(([count, row]) => ({ count, row: this.#asObject(row) }));
    this.#options.onChange?.(this, { time, changes: shown, reset });
  }

  #add(count, row) {
    const text = JSON.stringify(row);
    const found = this.#copies.get(text);
    const left = (found?.count ?? 0) + count;
    if (left === 0) this.#copies.delete(text);
    else if (found) found.count = left;
    else this.#copies.set(text, { row, count: left });
    const names = this.#keyNames();
    if (names.length === 0) return;
    const key = JSON.stringify(names.map((name) => row[this.columns.indexOf(name)]));
    if (left > 0) this.#byKey.set(key, row);
    else if (JSON.stringify(this.#byKey.get(key)) === text) this.#byKey.delete(key);
  }

  #keyNames() {
    const { key } = this.#options;
    if (key === undefined) return [];
    return Array.isArray(key) ? key : [key];
  }

  #asObject(row) {
    return Object.fromEntries(this.#columns.map(({ name }, at) => [name, row[at]]));
  }

  #tell(error) {
    this.#options.onError?.(error);
  }

  #fail(error) {
    this.#end(error);
    this.#reject(error);
  }
}

// --- the order of rows: SQL's order of values that came as JSON or as PostgreSQL's text

const NUMBERS = new Set([20, 21, 23, 26, 1700]); // oids of types
const FLOATS = new Set([700, 701]);
const TIMES = new Set([1082, 1083, 1114, 1184, 1266]);
const INTERVAL = 1186;

function sorted(rows, order, columns) {
  if (order.length === 0) return rows;
  const keys = order.map(({ column, descending, nulls_first: nullsFirst }) => {
    const key = keyOf(columns[column].type_oid);
    return { of: (row) => (row[column] === null ? null : key(row[column])), descending, nullsFirst };
  });
  const found = rows.map((row) => ({ row, keys: keys.map(({ of }) => of(row)) }));
  found.sort((a, b) => {
    for (let at = 0; at < keys.length; at++) {
      const [x, y] = [a.keys[at], b.keys[at]];
      if (x === null && y === null) continue;
      if (x === null || y === null) return (x === null) === keys[at].nullsFirst ? -1 : 1;
      const less = compared(x, y);
      if (less !== 0) return keys[at].descending ? -less : less;
    }
    return 0;
  });
  return found.map(({ row }) => row);
}

/** What makes of a value a list of numbers, BigInts and texts that are compared one by one. */
function keyOf(type) {
  if (NUMBERS.has(type)) return (value) => numberKey(String(value));
  if (FLOATS.has(type)) return (value) => (Number.isNaN(Number(value)) ? [1] : [0, Number(value)]);
  if (TIMES.has(type)) return timeKey;
  if (type === INTERVAL) return intervalKey;
  return (value) => [typeof value === "boolean" ? Number(value) : textOf(value)];
}

function textOf(value) {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return /[\ud800-\udfff]/.test(text) ? Array.from(text) : text; // by characters, not by halves of them
}

function compared(x, y) {
  if (Array.isArray(x) && Array.isArray(y)) {
    for (let at = 0; at < Math.min(x.length, y.length); at++) {
      const less = compared(x[at], y[at]);
      if (less !== 0) return less;
    }
    return x.length - y.length;
  }
  if (Array.isArray(x)) return compared(x, Array.from(y));
  if (Array.isArray(y)) return compared(Array.from(x), y);
  if (typeof x === "string" && x.length > 0 && y.length > 0) {
    const less = x.codePointAt(0) - y.codePointAt(0);
    if (less !== 0) return less;
  }
  return x < y ? -1 : x > y ? 1 : 0;
}

/** Numbers of any length: the whole part, then the digits behind the point as a text. */
function numberKey(text) {
  const found = /^(-?)(\d+)(?:\.(\d*))?$/.exec(text);
  if (found === null) {
    const rank = { NaN: 2, Infinity: 1, "-Infinity": -1 }[text];
    return rank === undefined ? [0, textOf(text)] : [rank];
  }
  const [, minus, whole, digits = ""] = found;
  const behind = digits.replace(/0+$/, "");
  if (minus === "" || /^[0.]*$/.test(text.slice(1))) return [0, BigInt(whole), 1, behind];
  // What is further from zero comes first: digits count backwards, and an end is behind all of them.
  const backwards = behind.replace(/\d/g, (digit) => String(9 - Number(digit)));
  return [0, -BigInt(whole), behind === "" ? 1 : -1, `${backwards}:`];
}

/** Days and seconds since 1970, as if in UTC; of a time alone the seconds. */
function timeKey(text) {
  if (text === "infinity" || text === "-infinity") return [text === "infinity" ? 1 : -1];
  const found =
    /^(?:(\d+)-(\d\d)-(\d\d))?[ T]?(?:(\d\d):(\d\d):(\d\d(?:\.\d+)?))?(?:([+-])(\d\d)(?::?(\d\d))?(?::?(\d\d))?)?( BC)?$/.exec(
      text,
    );
  if (found === null) return [0, textOf(text)];
  const [, year, month = "1", day = "1", hour = "0", minute = "0", second = "0"] = found;
  const [, , , , , , , sign, hours = "0", minutes = "0", seconds = "0", bc] = found;
  const ahead = (Number(hours) * 60 + Number(minutes)) * 60 + Number(seconds);
  const at = (Number(hour) * 60 + Number(minute)) * 60 + Number(second);
  const utc = at - (sign === "-" ? -ahead : ahead);
  const days = year === undefined ? 0 : daysOf(bc ? 1 - Number(year) : Number(year), Number(month), Number(day));
  const more = Math.floor(utc / 86_400);
  return [0, days + more, utc - more * 86_400, year === undefined ? -ahead : 0];
}

/** Days since 1970 of a date of the Gregorian calendar. */
function daysOf(year, month, day) {
  const shifted = month <= 2 ? year - 1 : year;
  const era = Math.floor(shifted / 400);
  const ofEra = shifted - era * 400;
  const ofYear = Math.floor((153 * (month + (month > 2 ? -3 : 9)) + 2) / 5) + day - 1;
  return era * 146_097 + ofEra * 365 + Math.floor(ofEra / 4) - Math.floor(ofEra / 100) + ofYear - 719_468;
}

/** Days, a month having 30, and seconds: an interval of 24 hours equals that of a day. */
function intervalKey(text) {
  const found =
    /^(?:(-?\d+) years? ?)?(?:(-?\d+) mons? ?)?(?:(-?\d+) days? ?)?(?:([+-]?)(\d+):(\d\d):(\d\d(?:\.\d+)?))?$/.exec(text);
  if (found === null) return [textOf(text)];
  const [years, months, days] = found.slice(1, 4).map((each) => Number(each ?? 0));
  const [hours, minutes, seconds] = found.slice(5, 8).map((each) => Number(each ?? 0));
  const time = ((hours * 60 + minutes) * 60 + seconds) * (found[4] === "-" ? -1 : 1);
  const all = (years * 12 + months) * 30 + days;
  const more = Math.floor(time / 86_400);
  return [all + more, time - more * 86_400];
}

/** Whether another attempt would fail too: the request itself is wrong, or is not allowed. */
function isFinal(error) {
  return error instanceof ForeshoreError && error.status >= 400 && error.status < 500;
}

function addressOf(query, { url, params, options }) {
  const base = url ?? globalThis.location?.origin;
  if (base === undefined) throw new TypeError("the option url is missing");
  const address = new URL("/api/subscribe", base);
  address.searchParams.set("query", query);
  if (params !== undefined) address.searchParams.set("params", JSON.stringify(params, withBigInt));
  if (options !== undefined) address.searchParams.set("options", JSON.stringify(options));
  return address.href;
}

/** JSON has no BigInt: it is sent as its text, which a parameter takes as well. */
function withBigInt(_key, value) {
  return typeof value === "bigint" ? String(value) : value;
}

function headersOf(auth, token) {
  const headers = { Accept: "text/event-stream" };
  if (token !== null) headers["Last-Event-ID"] = token;
  if (auth?.token) {
    headers.Authorization = `Bearer ${auth.token}`;
  } else if (auth) {
    const bytes = new TextEncoder().encode(`${auth.user}:${auth.password ?? ""}`);
    headers.Authorization = `Basic ${btoa(String.fromCharCode(...bytes))}`;
  }
  return headers;
}

async function errorOf(answer) {
  let fields = {};
  try {
    fields = (await answer.json()).error ?? {};
  } catch {
    // A proxy has answered, not the server: the status says all.
  }
  return new ForeshoreError(fields, answer.status);
}

function delayOf(attempt) {
  const longest = Math.min(LONGEST_DELAY_MS, FIRST_DELAY_MS * 2 ** Math.min(attempt, 10));
  return longest * (0.5 + Math.random() / 2); // so that many clients do not come at once
}

function pause(ms, signal) {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal.addEventListener("abort", end, { once: true });
  });
}

/** The events of a stream of bytes; `listen` is called whenever some have come. */
async function* eventsOf(body, signal, listen) {
  const reader = body.getReader();
  let fail = () => {};
  signal.addEventListener("abort", () => fail(signal.reason), { once: true });
  // A read of a connection that is aborted need not ever be done by itself.
  const read = () =>
    new Promise((resolve, reject) => {
      fail = reject;
      reader.read().then(resolve, reject);
    });
  const decoder = new TextDecoder();
  let rest = "";
  let event = { name: "message", id: undefined, data: "" };
  try {
    for (;;) {
      const { done, value } = await read();
      if (done) return;
      listen();
      const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
      rest = lines.pop();
      if (rest.length > LONGEST_LINE) throw new Error("a line of the stream is too long");
      for (const line of lines) {
        if (line === "") {
          if (event.data !== "") yield event;
          event = { name: "message", id: undefined, data: "" };
          continue;
        }
        const colon = line.indexOf(":");
        const value = line.slice(colon + 1).replace(/^ /, "");
        if (line.startsWith("event:")) event.name = value;
        else if (line.startsWith("id:")) event.id = value;
        else if (line.startsWith("data:")) event.data += value;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
