// Names for the editor to complete: columns of the relations in the statement, objects, words of SQL.

import { catalog } from "./catalog.js";
import { rows } from "./api.js";
import { quoteName } from "./sql_text.js";

const WORDS = ("SELECT FROM WHERE GROUP BY ORDER BY HAVING LIMIT OFFSET JOIN LEFT JOIN INNER JOIN FULL JOIN CROSS JOIN LATERAL ON USING " +
  "AS AND OR NOT IN IS NULL LIKE ILIKE BETWEEN CASE WHEN THEN ELSE END DISTINCT UNION ALL EXCEPT INTERSECT WITH RECURSIVE VALUES " +
  "INSERT INTO UPDATE SET DELETE CREATE TABLE CREATE VIEW CREATE MATERIALIZED VIEW CREATE INDEX CREATE DEFAULT INDEX ON CREATE SOURCE " +
  "CREATE SINK CREATE CONNECTION CREATE CLUSTER CREATE SCHEMA DROP ALTER SHOW EXPLAIN ANALYZE SUBSCRIBE TO COPY BEGIN COMMIT " +
  "ROLLBACK GRANT REVOKE RETURNING FILTER OVER PARTITION BY count sum avg min max now() mz_now() coalesce round date_trunc " +
  "extract string_agg array_agg row_number() rank() lag lead").split(" ");
const MOST = 60;
const COLUMNS_MS = 30_000;

let routines = null; // names of functions, asked for once
let system = null; // the system's relations with their columns, asked for once

async function once(query, take) {
  try {
    return take(await rows(query));
  } catch {
    return null; // the next completion asks again
  }
}

async function freshRoutines() {
  routines ??= await once(
    "SELECT DISTINCT proname AS name FROM pg_proc WHERE proname ~ '^[a-z][a-z0-9_]*$' ORDER BY 1",
    (found) => found.map(({ name }) => ({ name, text: `${name}(` })),
  );
  return routines || [];
}

async function systemRelations() {
  if (!system) {
    const [list, of] = await Promise.all([
      once("SELECT r.id, r.name, s.name AS schema_name, r.type FROM mz_relations r JOIN mz_schemas s ON s.id = r.schema_id WHERE r.id NOT LIKE 'u%' ORDER BY r.name", (found) => found),
      once("SELECT c.id, c.name, c.type FROM mz_columns c WHERE c.id NOT LIKE 'u%' ORDER BY c.id, c.position", grouped),
    ]);
    if (list && of) system = { list, of };
  }
  return system || { list: [], of: new Map() };
}

function grouped(found) {
  const of = new Map();
  for (const { id, name, type } of found) of.set(id, [...(of.get(id) || []), { name, type }]);
  return of;
}

let columns = { at: -Infinity, of: new Map(), asking: null };

async function readColumns() {
  const found = await rows("SELECT c.id, c.name, c.type FROM mz_columns c WHERE c.id LIKE 'u%' ORDER BY c.id, c.position");
  columns = { at: performance.now(), of: grouped(found), asking: null };
}

/** The columns of all relations; old ones while new ones are on their way, so that the keys of a typist do not wait. */
async function freshColumns() {
  if (performance.now() - columns.at > COLUMNS_MS) columns.asking ||= readColumns().catch(() => (columns.asking = null));
  if (!columns.of.size) await columns.asking;
  return columns.of;
}

/** Objects and schemas that the text names. */
function named(text, objects) {
  const words = new Set(text.match(/"(?:[^"]|"")+"|[A-Za-z_][\w$]*/g)?.map((word) => word.replace(/^"|"$/g, "").replaceAll('""', '"')) || []);
  return objects.filter((object) => words.has(object.name) || words.has(object.name.toLowerCase()));
}

/** Aliases in the text: Map of alias to the relation's name. */
function aliases(text) {
  const found = new Map();
  const pattern = /\b(?:from|join|,)\s+((?:[\w$"]+\.)*[\w$"]+)(?:\s+as)?\s+([a-z_][\w$]*)/gi;
  for (const [, relation, alias] of text.matchAll(pattern)) found.set(alias.toLowerCase(), relation.split(".").pop().replaceAll('"', ""));
  return found;
}

function entries(list, prefix) {
  const wanted = prefix.toLowerCase().replace(/^"/, "");
  const fits = list.filter((item) => item.name.toLowerCase().startsWith(wanted));
  const near = wanted.length > 1 ? list.filter((item) => item.near && !item.name.toLowerCase().startsWith(wanted) && item.name.toLowerCase().includes(wanted)) : [];
  const seen = new Set();
  return [...fits, ...near].filter(({ text }) => !seen.has(text) && seen.add(text)).slice(0, MOST);
}

/** `near`: also offered for letters from the middle of the name. */
const hint = (name, text, note, near = true) => ({
  name, text, near,
  render: (element) => {
    const label = document.createElement("span");
    label.textContent = name;
    const kind = document.createElement("small");
    kind.textContent = note;
    element.append(label, kind);
  },
});

/** Wait until the catalog was asked for the first time. */
function catalogRead() {
  if (catalog.state.data) return null;
  return new Promise((resolve) => {
    const end = catalog.subscribe((state) => {
      if (!state.data && !state.error) return;
      end();
      resolve();
    });
  });
}

/** Whether a token is a part of a comment or of a literal. */
function isText({ type, string }) {
  return /comment/.test(type || "") || (/string/.test(type || "") && !string.startsWith('"'));
}

/** The completions at the cursor, as CodeMirror's show-hint wants them; with `typed` none for a word that is whole. */
export async function complete(editor, { typed = false } = {}) {
  const cursor = editor.getCursor();
  if (isText(editor.getTokenAt(cursor))) return null;
  const before = editor.getLine(cursor.line).slice(0, cursor.ch);
  const [, owner, prefix] = /(?:((?:[\w$]+|"[^"]*")(?:\.(?:[\w$]+|"[^"]*"))*)\.)?("?[\w$]*)$/.exec(before);
  if (/^\d/.test(prefix)) return null;
  await catalogRead();
  const own = (catalog.state.data?.list || []).filter((object) => !object.system);
  const text = editor.getValue();
  // The system's relations only if they are named: there are hundreds.
  const asked = /\b(pg_|mz_|information_schema)/i.test(text);
  const others = asked ? await systemRelations() : { list: [], of: [] };
  const objects = [...own, ...others.list];
  const of = new Map([...others.of, ...(await freshColumns())]);
  const functions = owner ? [] : (await freshRoutines()).map(({ name, text: call }) => hint(name, call, "function", false));
  const columnHints = (object) => (of.get(object.id) || []).map((c) => hint(c.name, quoteName(c.name), c.type));
  let list;
  if (owner) {
    const last = owner.split(".").pop().replaceAll('"', "");
    const relation = aliases(text).get(last.toLowerCase()) || last;
    list = [
      ...objects.filter((o) => o.name === relation).flatMap(columnHints),
      ...objects.filter((o) => o.schema_name === last).map((o) => hint(o.name, quoteName(o.name), o.type)),
    ];
  } else {
    const upper = prefix && prefix === prefix.toUpperCase();
    list = [
      ...named(text, objects).flatMap(columnHints),
      ...objects.filter((o) => o.type !== "index").map((o) => hint(o.name, quoteName(o.name), o.type)),
      ...[...new Set(objects.map((o) => o.schema_name))].map((name) => hint(name, quoteName(name), "schema")),
      ...WORDS.filter((word) => word.length > 1).map((word) => hint(word, upper || /[()]/.test(word) || word === word.toLowerCase() ? word : word.toLowerCase(), "", false)),
      ...functions,
    ];
  }
  const from = { line: cursor.line, ch: cursor.ch - prefix.length };
  const offered = entries(list, prefix);
  // Else Enter behind a whole word would take the offer instead of beginning a line.
  const whole = typed && offered.some(({ name, near }, i) => (near || i === 0) && name.toLowerCase() === prefix.toLowerCase());
  return { list: whole ? [] : offered, from, to: cursor };
}
