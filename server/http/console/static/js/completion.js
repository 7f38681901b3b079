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

let columns = { at: -Infinity, of: new Map(), asking: null };

async function readColumns() {
  const found = await rows("SELECT c.id, c.name, c.type FROM mz_columns c WHERE c.id LIKE 'u%' ORDER BY c.id, c.position");
  const of = new Map();
  for (const { id, name, type } of found) of.set(id, [...(of.get(id) || []), { name, type }]);
  columns = { at: performance.now(), of, asking: null };
}

async function freshColumns() {
  if (performance.now() - columns.at > COLUMNS_MS) columns.asking ||= readColumns().catch(() => (columns.asking = null));
  await columns.asking;
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
  const near = wanted.length > 1 ? list.filter((item) => !item.name.toLowerCase().startsWith(wanted) && item.name.toLowerCase().includes(wanted)) : [];
  const seen = new Set();
  return [...fits, ...near].filter(({ text }) => !seen.has(text) && seen.add(text)).slice(0, MOST);
}

const hint = (name, text, note) => ({
  name, text,
  render: (element) => {
    const label = document.createElement("span");
    label.textContent = name;
    const kind = document.createElement("small");
    kind.textContent = note;
    element.append(label, kind);
  },
});

/** The completions at the cursor, as CodeMirror's show-hint wants them. */
export async function complete(editor) {
  const cursor = editor.getCursor();
  const before = editor.getLine(cursor.line).slice(0, cursor.ch);
  const [, owner, prefix] = /(?:((?:[\w$]+|"[^"]*")(?:\.(?:[\w$]+|"[^"]*"))*)\.)?("?[\w$]*)$/.exec(before);
  const objects = (catalog.state.data?.list || []).filter((object) => !object.system);
  const of = await freshColumns();
  const text = editor.getValue();
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
      ...WORDS.filter((word) => word.length > 1).map((word) => hint(word, upper || /[()]/.test(word) || word === word.toLowerCase() ? word : word.toLowerCase(), "")),
    ];
  }
  const from = { line: cursor.line, ch: cursor.ch - prefix.length };
  return { list: entries(list, prefix), from, to: cursor };
}
