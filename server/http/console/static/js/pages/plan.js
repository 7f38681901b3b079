// A plan that EXPLAIN has printed, as a picture: rows flow from the left to the right.

import { html, useState } from "../../vendor/htm/preact.js";
import { Graph } from "../graph.js";
import { planOf } from "../plan.js";
import { Field } from "../ui.js";

const LINE = 30; // characters of a line in a box
const LINES = 3;

/** The words of a text in lines of a box; the last one is cut. */
function wrapped(text) {
  const lines = [];
  for (const word of text.replace(/\n/g, " ").split(" ")) {
    const last = lines[lines.length - 1];
    if (last !== undefined && last.length + 1 + word.length <= LINE) lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(word);
  }
  return lines.length > LINES ? [...lines.slice(0, LINES - 1), lines.slice(LINES - 1).join(" ")] : lines;
}

export function Plan({ lines }) {
  const [chosen, setChosen] = useState(null);
  const { nodes, facts } = planOf(lines);
  if (!nodes.length) return html`<div class="none">There is nothing to draw in this plan.</div>`;
  const shown = nodes.map((node) => {
    const rest = node.text.startsWith(node.title) ? node.text.slice(node.title.length).trim() : node.text;
    return { id: node.id, title: node.title, kind: node.inputs.length ? "operator" : "table", lines: rest ? wrapped(rest) : [], tip: node.text };
  });
  const edges = nodes.flatMap((node) => node.inputs.map((from) => ({ from, to: node.id })));
  const detail = nodes.find((node) => node.id === chosen);
  return html`<div class="plan" data-testid="plan">
    ${facts.length > 0 && html`<dl class="fields">${facts.map(([name, value]) => html`<${Field} key=${name} label=${name}>${value}</${Field}>`)}</dl>`}
    <${Graph} nodes=${shown} edges=${edges} selected=${chosen} onSelect=${(id) => setChosen(id === chosen ? null : id)} label="Plan"
      footer=${detail ? html`<div class="detail" aria-live="polite"><h3>${detail.title}</h3><pre>${detail.text}</pre></div>` : html`<p class="dim hint-line">Choose a step to read it whole. Rows flow from the left to the right.</p>`} />
  </div>`;
}
