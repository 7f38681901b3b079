// SQL as text: names and literals quoted, statements coloured.

import "../vendor/codemirror/codemirror.js";
import "../vendor/codemirror/sql.js";
import "../vendor/codemirror/runmode.js";

const PLAIN = /^[a-z_][a-z0-9_$]*$/;
// Words that PostgreSQL reserves, so that as names they need quotes.
const RESERVED = new Set(
  ("all analyse analyze and any array as asc asymmetric authorization both case cast check collate " +
    "column concurrently constraint create cross current_catalog current_date current_role current_schema " +
    "current_time current_timestamp current_user default deferrable desc distinct do else end except false " +
    "fetch for foreign freeze from full grant group having ilike in initially inner intersect into is " +
    "isnull join lateral leading left like limit localtime localtimestamp natural not notnull null offset " +
    "on only or order outer overlaps placing primary references returning right select session_user " +
    "similar some symmetric table tablesample then to trailing true union unique user using variadic " +
    "verbose when where window with").split(" "),
);

export function quoteName(name) {
  if (PLAIN.test(name) && !RESERVED.has(name)) return name;
  return '"' + name.replaceAll('"', '""') + '"';
}

export function quoteNames(...names) {
  return names.filter((name) => name !== null && name !== undefined).map(quoteName).join(".");
}

export const MODE = "text/x-foreshore";

// Words of ours that PostgreSQL has not, for their colour.
const OURS = ("subscribe sink sinks sources secret connections cluster clusters replica replicas envelope upsert debezium " +
  "freshness progress snapshot up hydration expect memory refresh broker topic webhook generator qualify asof").split(" ");
// Words that are more often names of columns and aliases.
const NAMES = /^(\w|name|names|value|key|keys|data|state|level|label|length|class|location|message|target|parameter|number|id)$/;
const postgres = window.CodeMirror.resolveMode("text/x-pgsql");
window.CodeMirror.defineMIME(MODE, {
  ...postgres,
  keywords: Object.fromEntries([...Object.keys(postgres.keywords).filter((word) => !NAMES.test(word)), ...OURS].map((word) => [word, true])),
});

/** The pieces of a text as [text, class or null]; a class is a name of CodeMirror's styles. */
export function pieces(text) {
  const found = [];
  window.CodeMirror.runMode(text, MODE, (piece, style) => {
    found.push([piece, style ? "cm-" + style.replace(/ +/g, " cm-") : null]);
  });
  return found;
}

/** The UTF-16 offset of PostgreSQL's position, which counts characters from 1. */
export function offsetOf(text, position) {
  let offset = 0;
  let left = position - 1;
  for (const character of text) {
    if (left-- <= 0) break;
    offset += character.length;
  }
  return Math.min(offset, text.length);
}

// Only in E'...' is a backslash more than itself.
const PIECE = /--[^\n]*|\/\*|\b[eE]'(?:[^'\\]|''|\\.)*'?|'(?:[^']|'')*'?|"(?:[^"]|"")*"?|\$(?:[A-Za-z_]\w*)?\$|;/sy;

/** The end of a comment that may have others in it. */
function endOfComment(text, start) {
  let depth = 0;
  for (let at = start; at < text.length - 1; at += 1) {
    const two = text.slice(at, at + 2);
    if (two === "/*") depth += 1;
    else if (two === "*/") depth -= 1;
    else continue;
    at += 1;
    if (depth === 0) return at + 1;
  }
  return text.length;
}

/** The statements of a text: [{start, end, text}]; `end` is behind the semicolon. Empty ones are left out. */
export function statementsOf(text) {
  const found = [];
  let start = 0;
  const add = (end) => {
    const piece = text.slice(start, end);
    const lead = piece.length - piece.trimStart().length;
    if (piece.replace(/;$/, "").trim()) found.push({ start: start + lead, end, text: piece.trim().replace(/;$/, "").trimEnd() });
    start = end;
  };
  for (let at = 0; at < text.length; ) {
    PIECE.lastIndex = at;
    const match = PIECE.exec(text);
    if (!match) at += 1;
    else if (match[0] === ";") add((at += 1));
    else if (match[0] === "/*") at = endOfComment(text, at);
    else if (match[0].startsWith("$")) {
      const end = text.indexOf(match[0], at + match[0].length);
      at = end < 0 ? text.length : end + match[0].length;
    } else at += match[0].length;
  }
  add(text.length);
  return found;
}

/** The statement in which an offset is, or the last one before it. */
export function statementAt(text, offset) {
  const all = statementsOf(text);
  return all.find(({ end }) => offset < end) || all[all.length - 1] || null;
}
