// Numbers, sizes, times and types as people read them.

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

export function count(value) {
  return value === null || value === undefined ? "–" : whole.format(Number(value));
}

export function compact(value) {
  if (value === null || value === undefined) return "–";
  const number = Number(value);
  if (Math.abs(number) < 10_000) return Number.isInteger(number) ? whole.format(number) : String(Number(number.toPrecision(3)));
  for (const [unit, size] of [["bn", 1e9], ["m", 1e6], ["k", 1e3]]) {
    if (Math.abs(number) >= size) return trimmed(number / size) + " " + unit;
  }
  return String(number);
}

function trimmed(number) {
  return number >= 100 ? number.toFixed(0) : number.toFixed(1).replace(/\.0$/, "");
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  let number = Number(value);
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (Math.abs(number) >= 1000 && unit < units.length - 1) {
    number /= 1024;
    unit += 1;
  }
  return (unit ? trimmed(number) : whole.format(number)) + " " + units[unit];
}

export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  let value = Number(ms);
  if (value < 0.1) return value === 0 ? "0 ms" : value.toFixed(3) + " ms";
  if (value < 10) return value.toFixed(1).replace(/\.0$/, "") + " ms";
  if (value < 1000) return Math.round(value) + " ms";
  if (value < 59_950) return trimmed(value / 1000) + " s";
  value = Math.round(value / 1000) * 1000; // so that no unit is shown with 60 of the next
  if (value < 3_600_000) return inTwo(value, 60_000, "min", 1000, "s");
  if (value < 86_400_000) return inTwo(value, 3_600_000, "h", 60_000, "min");
  return inTwo(value, 86_400_000, "d", 3_600_000, "h");
}

/** A value in two units, the smaller one left out where there are none of it. */
function inTwo(value, large, name, small, other) {
  const rest = Math.floor((value % large) / small);
  return `${Math.floor(value / large)} ${name}${rest ? ` ${rest} ${other}` : ""}`;
}

/** PostgreSQL's timestamptz text as a Date, or null. */
export function moment(text) {
  if (!text) return null;
  const date = new Date(text.replace(" ", "T").replace(/([+-]\d\d)$/, "$1:00"));
  return Number.isNaN(date.getTime()) ? null : date;
}

/** A time as the clock of its own time zone has it, so that a chart and a table of results show the same. */
export function wall(text) {
  return moment(/^\d+-\d\d-\d\d$/.test(text || "") ? text + "T00:00" : text?.replace(/(:\d\d(?:\.\d+)?)[+-]\d\d(?::\d\d){0,2}$/, "$1"));
}

export function clock(date) {
  return date ? date.toLocaleTimeString("en-GB") : "–";
}

/** A moment in the browser's time zone: its time, with the day where that is not today. */
export function when(date, now = new Date()) {
  if (!date) return "–";
  const [day, today] = [date, now].map((each) => each.toLocaleDateString("sv-SE"));
  return day === today ? clock(date) : `${day} ${clock(date)}`;
}

/** PostgreSQL's interval, such as 1 day 00:00:00.207, in milliseconds; null if it has months or years. */
export function intervalMs(text) {
  const found = /^(?:(-?\d+) days? ?)?(?:(-)?(\d+):(\d\d):(\d\d(?:\.\d+)?))?$/.exec(text ?? "-");
  if (!found) return null;
  const [, days, minus, hours, minutes, seconds] = found;
  return Number(days || 0) * 86_400_000 + (minus ? -1 : 1) * (Number(hours || 0) * 3_600_000 + Number(minutes || 0) * 60_000 + Number(seconds || 0) * 1000);
}

export function ago(text, now = Date.now()) {
  const date = moment(text);
  return date ? duration(Math.max(0, now - date.getTime())) : "–";
}

/** When something is due, as a person says it; `now` is the server's clock. */
export function due(text, now = Date.now()) {
  const date = moment(text);
  if (!date) return "";
  const left = date.getTime() - now;
  return left > 500 ? `tried again in ${duration(Math.ceil(left / 1000) * 1000)}` : "being tried now";
}

const TYPES = {
  16: "boolean", 17: "bytea", 18: '"char"', 19: "name", 20: "bigint", 21: "smallint", 23: "integer",
  25: "text", 26: "oid", 114: "json", 700: "real", 701: "double precision", 790: "money", 869: "inet",
  1042: "character", 1043: "varchar", 1082: "date", 1083: "time", 1114: "timestamp", 1184: "timestamptz",
  1186: "interval", 1266: "timetz", 1560: "bit", 1700: "numeric", 2950: "uuid", 3802: "jsonb",
  1000: "boolean[]", 1005: "smallint[]", 1007: "integer[]", 1009: "text[]", 1016: "bigint[]",
  1021: "real[]", 1022: "double precision[]", 1231: "numeric[]",
};
const NUMBERS = new Set([20, 21, 23, 26, 700, 701, 1700]);
const TIMES = new Set([1082, 1114, 1184]);

export const typeName = (oid) => TYPES[oid] || "";
export const isNumber = (oid) => NUMBERS.has(oid);
export const isTime = (oid) => TIMES.has(oid);

/** A value of a result as one text; null stays null. */
export function cell(value) {
  if (value === null || value === undefined) return null;
  if (typeof value === "string") return value;
  if (typeof value === "object") return JSON.stringify(value);
  return String(value);
}

export const KINDS = {
  table: "Table",
  view: "View",
  "materialized-view": "Materialized view",
  index: "Index",
  source: "Source",
  sink: "Sink",
  connection: "Connection",
  secret: "Secret",
  type: "Type",
  function: "Function",
  sequence: "Sequence",
};

export const kindName = (kind) => KINDS[kind] || kind;
