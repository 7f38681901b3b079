// SQL in lines: clauses begin lines, lists and conditions that are long are broken. Only white space
// changes: words, literals and comments stay as they are.

const WIDTH = 88;
const TOKEN = /--[^\n]*|\/\*|\b(?:[eE]|[bB]|[xX]|[uU]&)'(?:[^'\\]|''|\\.)*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(?:[A-Za-z_]\w*)?\$|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|[A-Za-z_\u0080-\uffff][\w$\u0080-\uffff]*|\$\d+|::|[-+*\/<>=~!@#%^&|`?]+|\s+|[^]/y;
// Words that begin a line of a query, outside of parentheses.
const CLAUSE = /^(with|select|from|where|group|having|window|order|limit|offset|fetch|union|intersect|except|values|set|returning|join|left|right|full|inner|cross|natural|qualify)$/i;
const JOINS = /^(left|right|full|inner|cross|natural)$/i;
const LISTS = /^(select|group|order|values|set|returning|with|from|window)$/i;
const DEEPEST = 60; // parentheses within each other, as each is laid out with all that is in it
const STRING = /^(?:\w&?|[uU]&)?'/;
const QUERY = /^(select|with|values|table|insert|update|delete)$/i;

/** The tokens of a text without white space: [{text, before: whether space was before it}]. */
export function tokensOf(text) {
  const found = [];
  let before = false;
  for (let at = 0; at < text.length; ) {
    TOKEN.lastIndex = at;
    let token = TOKEN.exec(text)[0];
    if (token === "/*") token = text.slice(at, endOfComment(text, at));
    else if (/^\$(\w*)\$$/.test(token)) {
      const end = text.indexOf(token, at + token.length);
      token = text.slice(at, end < 0 ? text.length : end + token.length);
    }
    at += token.length;
    if (/^\s+$/.test(token)) before = true;
    else {
      found.push({ text: token, before, line: token.startsWith("--") });
      before = false;
    }
  }
  return found;
}

function endOfComment(text, start) {
  let depth = 0;
  for (let at = start; at < text.length - 1; at += 1) {
    const two = text.slice(at, at + 2);
    if (two !== "/*" && two !== "*/") continue;
    depth += two === "/*" ? 1 : -1;
    at += 1;
    if (depth === 0) return at + 1;
  }
  return text.length;
}

/** Tokens with what is in parentheses as one item: {inside: [items]}; null if they are not understood. */
function nested(tokens) {
  const stack = [[]];
  for (const [i, token] of tokens.entries()) {
    if (STRING.test(token.text) && tokens[i - 1]?.text.endsWith("'")) return null; // one constant in two lines
    if (token.text === "(") {
      if (stack.length > DEEPEST) return null;
      const group = { ...token, inside: [] };
      stack[stack.length - 1].push(group);
      stack.push(group.inside);
    } else if (token.text === ")" && stack.length > 1) stack.pop();
    else stack[stack.length - 1].push(token);
  }
  return stack.length === 1 ? stack[0] : null; // a parenthesis is open
}

const has = (items, test) => items.some((item) => test(item) || (item.inside && has(item.inside, test)));

/** Items in one line. */
function flat(items) {
  let text = "";
  items.forEach((item, i) => {
    const own = item.inside ? `(${flat(item.inside)})` : item.text;
    text += (i > 0 && spaced(items[i - 1], item) ? " " : "") + own;
  });
  return text;
}

/** Whether there is a space between two items: as it was, but after commas and around what begins a query. */
function spaced(left, right) {
  if (right.text === "," || right.text === ";") return false;
  return left.text === "," || right.before;
}

const joined = (lines, indent) => lines.join("\n" + " ".repeat(indent));

/** Split items where `test` says that one begins; the first part may be empty and is left out. */
function split(items, test) {
  const parts = [[]];
  items.forEach((item, i) => {
    if (test(item, i) && parts[parts.length - 1].length) parts.push([]);
    parts[parts.length - 1].push(item);
  });
  return parts.filter((part) => part.length);
}

function clauses(items) {
  return split(items, (item, i) => {
    const previous = items[i - 1]?.text || "";
    if (item.inside || !CLAUSE.test(item.text || "") || previous === ".") return false;
    if (/^join$/i.test(item.text)) return !JOINS.test(previous) && !/^(outer|asof|lateral)$/i.test(previous);
    if (JOINS.test(item.text)) {
      const next = items.slice(i + 1, i + 4).map((one) => one.text);
      return next.some((word) => /^join$/i.test(word || "")) && !JOINS.test(previous);
    }
    if (/^from$/i.test(item.text)) return !/^(distinct|delete)$/i.test(previous); // IS DISTINCT FROM, DELETE FROM
    if (/^(set|group|order|values|with|select|table)$/i.test(item.text)) return !/^(within|on|of|character|default|for|insert|time|grant|revoke|,)$/i.test(previous);
    return true;
  });
}

/** Items from a column `indent` on, in as many lines as they need. */
function laid(items, indent) {
  const line = flat(items);
  const comment = has(items, (item) => item.line);
  const query = items.some((item) => !item.inside && QUERY.test(item.text || ""));
  if (!comment && (!query || line.length <= 40) && indent + line.length <= WIDTH) return line;
  const parts = query ? clauses(items) : [items];
  return joined(parts.map((part) => clause(part, indent)), indent);
}

function clause(items, indent) {
  const comment = has(items, (item) => item.line);
  if (!comment && indent + flat(items).length <= WIDTH) return flat(items);
  const word = items[0].text || "";
  if (LISTS.test(word)) {
    const head = items.length > 1 && /^(by|distinct|recursive|all)$/i.test(items[1].text || "") ? 2 : 1;
    const rest = split(items.slice(head), (item, i) => items[head + i - 1]?.text === ",");
    if (rest.length > 1) return joined([flat(items.slice(0, head)), ...rest.map((part) => run(part, indent + 2))], indent + 2);
  }
  if (/^(where|having|qualify)$/i.test(word) || items.some((item) => /^on$/i.test(item.text || ""))) {
    let between = false;
    const conditions = split(items, (item) => {
      const text = (item.text || "").toLowerCase();
      if (text === "between") between = true;
      else if (text === "and" && between) between = false;
      else return text === "and" || text === "or";
      return false;
    });
    return joined(conditions.map((part) => run(part, indent + 2)), indent + 2);
  }
  return run(items, indent);
}

/** Items one after another; only what is in parentheses, and line comments, break the line. */
function run(items, indent) {
  let text = "";
  items.forEach((item, i) => {
    const space = i > 0 && spaced(items[i - 1], item) ? " " : "";
    const broken = i > 0 && items[i - 1].line;
    text += (broken ? "\n" + " ".repeat(indent) : space) + (item.inside ? group(item, indent, indent + text.length - text.lastIndexOf("\n") - 1) : item.text);
  });
  return text;
}

function group(item, indent, column) {
  const line = flat(item.inside);
  const comment = has(item.inside, (one) => one.line);
  const query = QUERY.test(item.inside[0]?.text || "");
  if (!item.inside.length || (!comment && column + line.length + 2 <= WIDTH && !(query && line.length > 40))) return `(${line})`;
  const inner = indent + 2;
  const parts = query ? [laid(item.inside, inner)] : split(item.inside, (one, i) => item.inside[i - 1]?.text === "," && !item.inside[i].line).map((part) => run(part, inner));
  return `(\n${" ".repeat(inner)}${joined(parts, inner)}\n${" ".repeat(indent)})`;
}

/** One statement in lines; one that is not understood stays as it is. */
export function formatted(statement) {
  const items = nested(tokensOf(statement));
  if (!items || !items.length) return statement;
  const text = laid(items, 0).replace(/[ \t]+\n/g, "\n").trim();
  const [before, after] = [statement, text].map((each) => tokensOf(each).map((token) => token.text).join("\0"));
  return before === after ? text : statement;
}

/** The statements of a text in lines, with an empty line between them; `parts` as `statementsOf` gives them. */
export function formattedAll(text, parts) {
  const shown = parts.map((part) => {
    const ended = text.slice(part.start, part.end).trimEnd().endsWith(";");
    const lines = formatted(part.text);
    return lines + (ended ? (/--[^\n]*$/.test(lines.slice(lines.lastIndexOf("\n") + 1)) ? "\n;" : ";") : "");
  });
  return shown.join("\n\n");
}
