// A graph as a picture: nodes are boxes with a title and lines of text, edges are curves.
//
// A picture begins as a whole. The wheel makes it larger at the pointer, and dragging moves it.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/htm/preact.js";
import { layout } from "./layers.js";
import { Icon } from "./ui.js";

const WIDTH = 212;
const TITLE = 22;
const LINE = 16;
const PADDING = 8;
const MOST_NODES = 400;
const EDGE = 8; // around the picture
const LEAST_HEIGHT = 120;
const LARGEST = 2; // times the full size
const STEP = 1.25; // of the buttons
const DRAGGED = 4; // pixels, after which a press is no click

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

/** The room of an element: [its width, the height that it may have]. */
function useRoom(element, isThere) {
  const [room, setRoom] = useState([0, 0]);
  useLayoutEffect(() => {
    if (!isThere) return undefined;
    const measure = () => {
      const { width } = element.current.getBoundingClientRect();
      const most = parseFloat(getComputedStyle(element.current).maxHeight);
      setRoom([Math.floor(width), Number.isFinite(most) ? Math.floor(most) : 640]);
    };
    const watch = new ResizeObserver(measure);
    watch.observe(element.current);
    window.addEventListener("resize", measure);
    return () => {
      watch.disconnect();
      window.removeEventListener("resize", measure);
    };
  }, [isThere]);
  return room;
}

/** What is seen of a picture of a size in a room: {scale, x, y}, of which x and y are its upper left corner. */
export function fitted([width, height], [wide, high]) {
  const scale = Math.min(1, wide / width, high / height) || 1;
  return { scale, x: (width - wide / scale) / 2, y: (height - high / scale) / 2 };
}

/** A view that is `factor` times as large, in which the point at (px, py) of the room stays where it is. */
export function zoomed(view, factor, [px, py], least) {
  const scale = Math.min(LARGEST, Math.max(least, view.scale * factor));
  return { scale, x: view.x + px / view.scale - px / scale, y: view.y + py / view.scale - py / scale };
}

/** nodes: [{id, title, lines, kind, state, heat, href, selected, tip}]; edges: [{from, to, label?, busy?}] */
export function Graph({ nodes, edges, label, onSelect, selected, footer }) {
  const box = useRef(null);
  const [moved, setMoved] = useState(null); // the view that somebody has chosen; null: the whole
  const shape = nodes.map((node) => node.id + ":" + (node.lines?.length || 0)).join() + "|" + edges.map((e) => e.from + ">" + e.to).join();
  const plan = useMemo(() => {
    if (nodes.length > MOST_NODES) return null;
    return layout(nodes.map((node) => ({ id: node.id, w: WIDTH, h: heightOf(node) })), edges);
  }, [shape]);
  const room = useRoom(box, plan !== null);
  const size = plan ? [plan.width + 2 * EDGE, plan.height + 2 * EDGE] : [1, 1];
  const whole = Math.min(1, room[0] / size[0]) || 1; // the scale at which it is as wide as the room
  const high = Math.max(LEAST_HEIGHT, Math.min(room[1], Math.ceil(size[1] * whole)));
  const fit = fitted(size, [room[0], high]);
  const view = moved || fit;
  const latest = useRef({});
  latest.current = { view, fit };
  const zoom = (factor, at = [room[0] / 2, high / 2]) => setMoved(zoomed(latest.current.view, factor, at, Math.min(latest.current.fit.scale, 1) / 2));
  useEffect(() => setMoved(null), [shape]);
  useEffect(() => {
    if (!plan) return undefined;
    const wheel = (event) => {
      event.preventDefault(); // a listener of the component would be passive
      const { left, top } = box.current.getBoundingClientRect();
      const lines = event.deltaMode === 1 ? 16 : 1;
      zoom(Math.exp(-event.deltaY * lines * 0.0015), [event.clientX - left, event.clientY - top]);
    };
    const element = box.current;
    element.addEventListener("wheel", wheel, { passive: false });
    return () => element.removeEventListener("wheel", wheel);
  }, [plan !== null, room[0], high]);
  if (!plan) return html`<div class="none">${nodes.length} boxes are too many for a picture: choose an object, whose dependencies are drawn.</div>`;
  const about = new Map(edges.map((edge) => [edge.from + ">" + edge.to, edge]));
  const shown = `${view.x - EDGE} ${view.y - EDGE} ${room[0] / view.scale || 1} ${high / view.scale}`;
  const keys = (event) => {
    const by = 60 / view.scale;
    const step = { ArrowLeft: [-by, 0], ArrowRight: [by, 0], ArrowUp: [0, -by], ArrowDown: [0, by] }[event.key];
    if (event.target !== box.current) return;
    if (step) setMoved({ ...view, x: view.x + step[0], y: view.y + step[1] });
    else if (event.key === "+" || event.key === "=") zoom(STEP);
    else if (event.key === "-") zoom(1 / STEP);
    else if (event.key === "0") setMoved(null);
    else return;
    event.preventDefault();
  };
  return html`<div class="graph-box">
    <div class="graph-tools">
      <button class="small ghost" aria-label="Smaller" title="Smaller (the wheel, or -)" onClick=${() => zoom(1 / STEP)}>−</button>
      <button class="small ghost" aria-label="Larger" title="Larger (the wheel, or +)" onClick=${() => zoom(STEP)}>+</button>
      <button class="small ghost" aria-pressed=${!moved} onClick=${() => setMoved(null)} title="The whole picture (0)"><${Icon} name="fit" size="14" /> Fit</button>
      <button class="small ghost" onClick=${() => zoom(1 / view.scale)}>Full size</button>
    </div>
    <div class="graph" tabindex="0" role="group" aria-label=${label} ref=${box} onKeyDown=${keys} onPointerDown=${(event) => drag(event, latest.current.view, setMoved)} style=${{ height: `${high}px` }}>
      <svg viewBox=${shown} width="100%" height=${high} data-scale=${view.scale.toFixed(3)}>
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

/** Move the view with the pointer until it is let go; a node that was dragged is not chosen. */
function drag(event, from, setView) {
  if (event.button !== 0) return;
  const [x, y] = [event.clientX, event.clientY];
  let moves = false;
  const move = (now) => {
    moves ||= Math.hypot(now.clientX - x, now.clientY - y) > DRAGGED;
    if (moves) setView({ ...from, x: from.x - (now.clientX - x) / from.scale, y: from.y - (now.clientY - y) / from.scale });
  };
  const end = () => {
    window.removeEventListener("pointermove", move);
    window.removeEventListener("pointerup", end);
    window.removeEventListener("pointercancel", end);
    if (!moves) return;
    const refuse = (click) => {
      click.preventDefault();
      click.stopPropagation();
    };
    window.addEventListener("click", refuse, { capture: true, once: true });
    setTimeout(() => window.removeEventListener("click", refuse, { capture: true }), 0);
  };
  window.addEventListener("pointermove", move);
  window.addEventListener("pointerup", end);
  window.addEventListener("pointercancel", end);
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
  const cls = `node kind-${node.kind || "other"}${node.state ? ` is-${node.state}` : ""}${selected ? " selected" : ""}`;
  const where = `translate(${at.x},${at.y})`;
  if (node.href) return html`<a href=${node.href} draggable="false" class=${cls} transform=${where} aria-label=${node.title}>${body}</a>`;
  const keys = (event) => (event.key === "Enter" || event.key === " ") && (event.preventDefault(), choose());
  return html`<g class=${cls} transform=${where} tabindex="0" role="button" aria-label=${node.title}
    aria-pressed=${selected} onClick=${choose} onKeyDown=${keys}>${body}</g>`;
}
