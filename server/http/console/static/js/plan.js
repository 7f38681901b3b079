// Plans as EXPLAIN prints them: lines that are indented below what they feed, or numbered operators.

const OPERATOR = /^ *Operator (\d+): (.*)$/;
const FACT = /^([A-Z][\w ()-]*): (.*)$/;
export const PLAN_COLUMN = "QUERY PLAN";

/** Whether a result is one that EXPLAIN has printed as text. */
export function isPlan(columns, rows) {
  return columns?.length === 1 && columns[0].name === PLAN_COLUMN && rows.length > 0 && rows.every(([line]) => typeof line === "string");
}

/**
 * The nodes of a plan and what is said beside it:
 * {nodes: [{id, title, text, inputs: [id]}], facts: [[name, value]]}; no nodes if it is no plan.
 */
export function planOf(lines) {
  return lines.some((line) => OPERATOR.test(line)) ? operators(lines) : indented(lines);
}

function operators(lines) {
  const nodes = [];
  const facts = [];
  let node = null;
  for (const line of lines) {
    const found = OPERATOR.exec(line);
    if (found) {
      const on = /\b(?:on|of) operators? (\d+(?:(?:, and |, | and )\d+)*)/.exec(found[2]);
      node = { id: found[1], title: titleOf(found[2]), text: found[2], inputs: on ? on[1].match(/\d+/g) : [] };
      nodes.push(node);
    } else if (node && /^ {2,}\S/.test(line)) node.text += "\n" + line.trim();
    else {
      const fact = FACT.exec(line.trim());
      if (fact) facts.push([fact[1], fact[2]]);
      if (line.trim()) node = null;
    }
  }
  return { nodes, facts };
}

function indented(lines) {
  const nodes = [];
  const facts = [];
  const open = []; // the nodes above the next line, with their indents
  for (const line of lines) {
    const text = line.trim();
    if (!text) continue;
    const indent = line.length - line.trimStart().length;
    const fact = indent === 0 || !nodes.length ? FACT.exec(text) : null;
    if (fact && !open.some((above) => above.indent < indent)) {
      facts.push([fact[1], fact[2]]);
      continue;
    }
    while (open.length && open[open.length - 1].indent >= indent) open.pop();
    const node = { id: String(nodes.length), title: titleOf(text), text, inputs: [] };
    if (open.length) open[open.length - 1].node.inputs.push(node.id);
    nodes.push(node);
    open.push({ node, indent });
  }
  return { nodes, facts };
}

/** A short name: the relation of a Get, else the operator's first word. */
function titleOf(text) {
  const get = /^(?:Get|Read|Scan|Index lookup on|Lookup) (\S+)/.exec(text);
  if (get) return get[1].split(".").pop().replaceAll('"', "");
  const join = /^(?:\w+ ){1,2}join\b/i.exec(text);
  if (join) return join[0];
  return text.split(/[ (=]/, 1)[0].replace(/,$/, "");
}
