// A graph as a picture: nodes are boxes with a title and lines of text, edges are curves.

import { html, useMemo, useState } from "../vendor/htm/preact.js";
import { layout } from "./layers.js";
import { Icon } from "./ui.js";

const WIDTH = 212;
const TITLE = 22;
const LINE = 16;
const PADDING = 8;
const MOST_NODES = 400;

const heightOf = (node) => PADDING * 2 + TITLE + LINE * (node.lines?.length || 0);

function curve(points) {
  const [[x, y], ...rest] = points;
  let path = `M${x},${y}`;
  let [px, py] = [x, y];
  for (const [qx, qy] of rest) {
    const middle = (px + qx) / 2;
    path += qy === py ? `L${qx},${qy}` : `C${middle},${py} ${middle},${qy} ${qx},${qy}`;
    [px, py] = [qx, qy];
  }
  return path;
}

function cut(text, most) {
  return text.length > most ? text.slice(0, most - 1) + "…" : text;
}

/** nodes: [{id, title, lines, kind, heat, href, selected, tip}]; edges: [{from, to, label?, busy?}] */
export function Graph({ nodes, edges, label, onSelect, selected, footer }) {
  const [fit, setFit] = useState(false);
  const shape = nodes.map((node) => node.id + ":" + (node.lines?.length || 0)).join() + "|" + edges.map((e) => e.from + ">" + e.to).join();
  const plan = useMemo(() => {
    if (nodes.length > MOST_NODES) return null;
    return layout(nodes.map((node) => ({ id: node.id, w: WIDTH, h: heightOf(node) })), edges);
  }, [shape]);
  if (!plan) return html`<div class="none">${nodes.length} nodes are too many for a picture.</div>`;
  const about = new Map(edges.map((edge) => [edge.from + ">" + edge.to, edge]));
  const [width, height] = [plan.width + 16, plan.height + 16];
  const size = fit ? { class: "fit" } : { width, height };
  return html`<div class="graph-box">
    <div class="graph-tools">
      <button class="small ghost" aria-pressed=${fit} onClick=${() => setFit(!fit)}><${Icon} name="fit" size="14" /> ${fit ? "Full size" : "Fit"}</button>
    </div>
    <div class="graph" tabindex="0" role="group" aria-label=${label}>
      <svg viewBox=${`-8 -8 ${width} ${height}`} ...${size}>
        <defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerUnits="userSpaceOnUse" markerWidth="10" markerHeight="10" orient="auto">
          <path d="M0,0L8,4L0,8z" class="arrow" /></marker></defs>
        ${plan.edges.map((edge) => {
          const detail = about.get(edge.from + ">" + edge.to) || {};
          const near = selected && (edge.from === selected || edge.to === selected);
          return html`<path key=${edge.from + ">" + edge.to} class=${"edge" + (near ? " near" : "") + (detail.busy ? " busy" : "") + (edge.turned ? " turned" : "")}
            d=${curve(edge.points)} marker-end="url(#arrow)" />`;
        })}
        ${nodes.map((node) => html`<${Node} key=${node.id} node=${node} at=${plan.nodes.get(node.id)} selected=${node.id === selected} onSelect=${onSelect} />`)}
      </svg>
    </div>
    ${footer}
  </div>`;
}

function Node({ node, at, selected, onSelect }) {
  const choose = () => onSelect?.(node.id);
  const body = html`
    <rect class="box" width=${at.w} height=${at.h} rx="6" />
    ${node.heat > 0 && html`<rect class="heat" width=${at.w} height=${at.h} rx="6" opacity=${Math.min(0.55, 0.06 + node.heat * 0.6)} />`}
    <rect class="stripe" width="4" height=${at.h} rx="2" />
    <text class="title" x="14" y=${PADDING + 14}>${cut(node.title, 23)}</text>
    ${(node.lines || []).map((line, i) => html`<text class="line" x="14" y=${PADDING + TITLE + 12 + i * LINE}>${cut(line, 28)}</text>`)}
    <title>${node.tip || [node.title, ...(node.lines || [])].join("\n")}</title>`;
  const cls = `node kind-${node.kind || "other"}${selected ? " selected" : ""}`;
  const where = `translate(${at.x},${at.y})`;
  if (node.href) return html`<a href=${node.href} class=${cls} transform=${where} aria-label=${node.title}>${body}</a>`;
  const keys = (event) => (event.key === "Enter" || event.key === " ") && (event.preventDefault(), choose());
  return html`<g class=${cls} transform=${where} tabindex="0" role="button" aria-label=${node.title}
    aria-pressed=${selected} onClick=${choose} onKeyDown=${keys}>${body}</g>`;
}
