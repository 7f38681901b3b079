// Results as files: the rows that the page has as CSV or JSON, or the whole result from the server.

import { file } from "./api.js";
import { cell } from "./format.js";

const TYPES = {
  csv: "text/csv",
  parquet: "application/vnd.apache.parquet",
  arrow: "application/vnd.apache.arrow.stream",
};

function save(blob, name) {
  const url = URL.createObjectURL(blob);
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

export function csvOf(columns, rows) {
  const quote = (value) => {
    const text = cell(value);
    if (text === null) return "";
    return text === "" || /[",\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
  };
  const lines = [columns.map((c) => quote(c.name)), ...rows.map((row) => row.map(quote))];
  return lines.map((line) => line.join(",")).join("\n") + "\n";
}

/** Rows as spreadsheets and COPY's text take them from the clipboard. */
export function tsvOf(rows) {
  const quote = (value) => {
    const text = cell(value) ?? "";
    return /[\t\r\n"]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
  };
  return rows.map((row) => row.map(quote).join("\t")).join("\n");
}

/** Rows as objects; of equal names the last value counts. */
export function jsonOf(columns, rows) {
  const lines = rows.map((row) => JSON.stringify(Object.fromEntries(columns.map((c, i) => [c.name, row[i]]))));
  return lines.length ? `[\n${lines.join(",\n")}\n]\n` : "[]\n";
}

export function saveCsv(columns, rows) {
  save(new Blob([csvOf(columns, rows)], { type: "text/csv" }), "result.csv");
}

export function saveJson(columns, rows) {
  save(new Blob([jsonOf(columns, rows)], { type: "application/json" }), "result.json");
}

/** Whether a statement can be run again without an effect. */
export function isRepeatable(text) {
  return /^(?:\s|--[^\n]*\n|\/\*(?:[^*]|\*(?!\/))*\*\/)*(?:select|with|values|table|show)\b/i.test(text) && !/\b(insert|update|delete|merge)\b/i.test(text);
}

/** Run a statement again, in a session of its own, and save its whole result; `kind` is csv, parquet or arrow. */
export async function saveWhole(text, kind) {
  save(await file(text, TYPES[kind]), `result.${kind}`);
}
