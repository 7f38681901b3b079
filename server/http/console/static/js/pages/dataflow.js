// The dataflow that keeps an object: its operators as a picture, with their rows, time and memory.

import { html, useRef, useState } from "../../vendor/htm/preact.js";
import { rows } from "../api.js";
import * as format from "../format.js";
import { Graph } from "../graph.js";
import { usePoll } from "../poll.js";
import { setQuery } from "../router.js";
import { Card, Empty, Failure, Field, Loading } from "../ui.js";
import { keywordOf, nameOf, useAnswer } from "./object.js";

const QUERIES = {
  operators: "SELECT replica_id, operator_id, name, parent_id, input_ids FROM mz_introspection.mz_dataflow_operators WHERE object_id = $1",
  work: `SELECT replica_id, operator_id, elapsed_ns, hydration_ns, merge_ns, steps, rows_in, rows_out
    FROM mz_introspection.mz_scheduling_elapsed WHERE object_id = $1`,
  memory: "SELECT replica_id, operator_id, name, records, size FROM mz_introspection.mz_arrangement_sizes WHERE object_id = $1",
};

async function ask(id) {
  const answers = await Promise.all(Object.values(QUERIES).map((query) => rows(query, [id])));
  return Object.fromEntries(Object.keys(QUERIES).map((name, i) => [name, answers[i]]));
}

/** What EXPLAIN ANALYZE says of each operator: Map of operator's number to its text. */
export function textsOf(explained) {
  const texts = new Map();
  for (const { operator } of explained) {
    const found = /^\s*(\d+): (.*)$/s.exec(operator);
    if (found && !found[2].endsWith("(shown above)") && !texts.has(Number(found[1]))) texts.set(Number(found[1]), found[2]);
  }
  return texts;
}

const numbers = (list) => (Array.isArray(list) ? list : String(list || "").replace(/[{}]/g, "").split(",").filter(Boolean)).map(Number);

export function operatorsOf(found, replica, texts) {
  const mine = (list) => list.filter((row) => row.replica_id === replica);
  const work = new Map(mine(found.work).map((row) => [row.operator_id === null ? null : Number(row.operator_id), row]));
  const memory = new Map();
  for (const row of mine(found.memory)) {
    const id = row.operator_id === null ? null : Number(row.operator_id);
    const before = memory.get(id) || { size: 0, records: 0, names: [] };
    memory.set(id, { size: before.size + Number(row.size), records: before.records + Number(row.records), names: [...before.names, row.name] });
  }
  const operators = mine(found.operators).map((row) => {
    const id = Number(row.operator_id);
    const done = work.get(id) || {};
    return {
      id, name: row.name, inputs: numbers(row.input_ids), text: texts?.get(id) || row.name, memory: memory.get(id),
      cpu: Number(done.elapsed_ns || 0) / 1e6, hydration: Number(done.hydration_ns || 0) / 1e6, merge: Number(done.merge_ns || 0) / 1e6,
      steps: Number(done.steps || 0), rowsIn: Number(done.rows_in || 0), rowsOut: Number(done.rows_out || 0),
    };
  });
  return { operators, rest: work.get(null), index: memory.get(null) };
}

export function Dataflow({ keepers, data, route }) {
  const keeper = keepers.find((object) => object.id === route.query.get("of")) || keepers[0];
  const choice = keepers.length > 1 && html`<select aria-label="Which dataflow" value=${keeper.id} onChange=${(e) => setQuery({ of: e.target.value, op: "" })}>
    ${keepers.map((object) => html`<option key=${object.id} value=${object.id}>${object.name}</option>`)}</select>`;
  return html`<${One} key=${keeper.id} object=${keeper} data=${data} route=${route} choice=${choice} />`;
}

function One({ object, data, route, choice }) {
  const { data: found, error } = usePoll(() => ask(object.id), 2000, object.id);
  const explained = useAnswer(() => rows(`EXPLAIN ANALYZE CPU FOR ${keywordOf(object.type)} ${nameOf(object)}`), object.id);
  const before = useRef(null);
  const [heat, setHeat] = useState("cpu");
  if (!found) return error ? html`<${Failure} error=${error} />` : html`<${Loading} />`;
  const replicas = [...new Set(found.operators.map((row) => row.replica_id))];
  const replica = replicas.includes(route.query.get("replica")) ? route.query.get("replica") : replicas[0];
  if (!replica) {
    return html`<${Empty} title="No operators to show">The dataflow has not begun, or its cluster computes it as a whole without operators.</${Empty}>`;
  }
  const { operators, rest, index } = operatorsOf(found, replica, explained.data && textsOf(explained.data));
  const moved = changes(before, found, operators);
  const share = sharesOf(operators, heat);
  const nodes = operators.map((op) => nodeOf(op, share.get(op.id)));
  const edges = operators.flatMap((op) => op.inputs.map((input) => ({ from: String(input), to: String(op.id), busy: moved.has(input) })));
  const top = operators.find((op) => !operators.some((other) => other.inputs.includes(op.id)));
  nodes.push({
    id: "out", kind: object.type, title: object.name,
    lines: [object.type === "index" ? "Index" : "Materialized view", index ? `${format.bytes(index.size)} · ${format.compact(index.records)} rows` : `${format.duration(Number(rest?.elapsed_ns || 0) / 1e6)} to put out`],
  });
  if (top) edges.push({ from: String(top.id), to: "out", busy: moved.has(top.id) });
  const names = new Map(data.replicas.map((one) => [one.id, one.name]));
  const aside = html`${choice}
    ${replicas.length > 1 && html`<select aria-label="Replica" value=${replica} onChange=${(e) => setQuery({ replica: e.target.value })}>${replicas.map((id) => html`<option value=${id}>${names.get(id) || id}</option>`)}</select>`}
    <label class="inline">Colour by <select value=${heat} onChange=${(e) => setHeat(e.target.value)}>
      <option value="cpu">CPU</option><option value="live">CPU since hydration</option><option value="memory">memory</option><option value="rows">rows out</option></select></label>`;
  const selected = route.query.get("op");
  const chosen = operators.find((op) => String(op.id) === selected);
  return html`<${Card} title="Operators" aside=${aside} flush>
    <${Graph} nodes=${nodes} edges=${edges} selected=${selected} onSelect=${(id) => setQuery({ op: id === selected ? "" : id })} label="Operators of the dataflow"
      footer=${chosen ? html`<${Detail} op=${chosen} />` : html`<p class="dim hint-line">Choose an operator to see what it does. Edges along which rows moved just now are strong.</p>`} />
  </${Card}>`;
}

/** The operators that have put out rows between the last two answers. */
function changes(before, found, operators) {
  if (before.current?.found !== found) {
    const old = before.current?.rows || new Map();
    const rowsOut = new Map(operators.map((op) => [op.id, op.rowsOut]));
    const moved = new Set(operators.filter((op) => old.has(op.id) && op.rowsOut > old.get(op.id)).map((op) => op.id));
    before.current = { found, rows: rowsOut, moved };
  }
  return before.current.moved;
}

function sharesOf(operators, heat) {
  const measure = { cpu: (op) => op.cpu, live: (op) => op.cpu - op.hydration, memory: (op) => op.memory?.size || 0, rows: (op) => op.rowsOut }[heat];
  const most = operators.reduce((peak, op) => Math.max(peak, measure(op)), 0);
  return new Map(operators.map((op) => [op.id, most > 0 ? measure(op) / most : 0]));
}

function nodeOf(op, heat) {
  const get = /^Get (\S+)/.exec(op.text);
  const lines = [
    `${format.compact(op.rowsIn)} in · ${format.compact(op.rowsOut)} out`,
    [format.duration(op.cpu), op.memory && format.bytes(op.memory.size)].filter(Boolean).join(" · "),
  ];
  if (get) lines[0] = `${format.compact(op.rowsOut)} rows out`;
  return {
    id: String(op.id), kind: "operator", heat, lines, tip: op.text,
    title: get ? get[1].split(".").pop().replaceAll('"', "") : op.name,
  };
}

function Detail({ op }) {
  return html`<div class="detail" aria-live="polite">
    <h3>${op.id}: ${op.name}</h3><pre>${op.text}</pre>
    <dl class="fields">
      <${Field} label="CPU">${format.duration(op.cpu)}</${Field}><${Field} label="of it hydration">${format.duration(op.hydration)}</${Field}>
      <${Field} label="of it merging">${format.duration(op.merge)}</${Field}><${Field} label="Steps">${format.count(op.steps)}</${Field}>
      <${Field} label="Rows in">${format.count(op.rowsIn)}</${Field}><${Field} label="Rows out">${format.count(op.rowsOut)}</${Field}>
      <${Field} label="Memory">${op.memory ? `${format.bytes(op.memory.size)} (${op.memory.names.join(", ")})` : "none"}</${Field}>
      <${Field} label="Records">${op.memory ? format.count(op.memory.records) : "–"}</${Field}>
    </dl>
  </div>`;
}
