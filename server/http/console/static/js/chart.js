// Lines and bars in SVG. Values are read off at the pointer; a table of the same is always near.

import { html, useEffect, useLayoutEffect, useRef, useState } from "../vendor/htm/preact.js";
import { linear, ticks, timeLabel, timeTicks } from "./scale.js";
import { bytes, compact, duration } from "./format.js";

const LEFT = 56;
const RIGHT = 12;
const TOP = 10;
const BOTTOM = 22;
export const COLOURS = 8;

const LETTER = 6.3; // the width of one in a label of an axis
const kindOf = (format) => (format === bytes ? "bytes" : format === duration ? "durations" : null);

/** Where a chart begins beside the labels of its axis, the longest of which needs room. */
function leftOf(labels) {
  return Math.max(LEFT, Math.ceil(LETTER * Math.max(...labels.map((label) => label.length))) + 14);
}

function useWidth() {
  const element = useRef(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    watch.observe(element.current);
    return () => watch.disconnect();
  }, []);
  return [element, width];
}

function pathOf(points, x, y) {
  let path = "";
  let gap = true;
  for (const [at, value] of points) {
    if (value === null || !Number.isFinite(value)) {
      gap = true;
      continue;
    }
    path += `${gap ? "M" : "L"}${x(at).toFixed(1)},${y(value).toFixed(1)}`;
    gap = false;
  }
  return path;
}

function nearest(points, at) {
  let [low, high] = [0, points.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < at) low = middle + 1;
    else high = middle;
  }
  if (low > 0 && at - points[low - 1][0] < points[low][0] - at) return points[low - 1];
  return points[low];
}

/**
 * series: [{name, points: [[x, y or null]]}] in the order of x; x is ms since 1970 if `time`.
 * marks: [{at, text}] are shown as vertical lines. `dots` shows points that no line connects.
 */
export function LineChart({ series, time = true, format = compact, height = 180, from, label, empty = "No samples yet", marks = [], dots = false }) {
  const [element, width] = useWidth();
  const [hover, setHover] = useState(null);
  const shown = series.filter((one) => one.points.length);
  const xs = shown.flatMap((one) => [one.points[0][0], one.points[one.points.length - 1][0]]);
  const low = Math.min(from ?? Infinity, ...xs);
  const high = Math.max(...xs);
  const values = shown.flatMap((one) => one.points.map(([, value]) => value)).filter((v) => v !== null && Number.isFinite(v));
  let content = html`<div class="none chart-none" style=${{ height: height + "px" }}>${empty}</div>`;
  if (width && values.length && shown.some((one) => one.points.length > 1)) {
    const base = values.reduce((a, b) => Math.min(a, b), 0);
    const most = values.reduce((a, b) => Math.max(a, b), base);
    const peak = most > base ? most + (most - base) * 0.06 : base + 1;
    const up = ticks(base, peak, 4, kindOf(format));
    const left = leftOf(up.map(format));
    const x = linear([low, high], [left, width - RIGHT]);
    const y = linear([base, peak], [height - BOTTOM, TOP]);
    const back = linear([left, width - RIGHT], [low, high]);
    const move = (event) => setHover(back(event.clientX - element.current.getBoundingClientRect().left));
    content = html`<svg width=${width} height=${height} role="img" aria-label=${label} onMouseMove=${move} onMouseLeave=${() => setHover(null)}>
      <${Axes} x=${x} y=${y} width=${width} height=${height} left=${left} low=${low} high=${high} up=${up} time=${time} format=${format} />
      ${marks.filter((mark) => mark.at >= low && mark.at <= high).map((mark) => html`<${Mark} mark=${mark} place=${x(mark.at)} height=${height} />`)}
      ${shown.map((one) => dots
        ? one.points.map(([at, value]) => html`<circle class=${"dot c" + one.colour} cx=${x(at)} cy=${y(value)} r="2.5" />`)
        : html`<path key=${one.name} class=${"line c" + one.colour} d=${pathOf(one.points, x, y)} />`)}
      ${hover !== null && html`<${Cursor} series=${shown} at=${hover} x=${x} y=${y} height=${height} />`}
    </svg>
    ${hover !== null && html`<${Tip} series=${shown} at=${hover} x=${x} width=${width} time=${time} format=${format} />`}`;
  }
  return html`<div class="chart" ref=${element}>${content}</div>`;
}

function Mark({ mark, place, height }) {
  return html`<g class="mark"><line x1=${place} x2=${place} y1=${TOP} y2=${height - BOTTOM} />
    <path d=${`M${place - 5},${TOP - 6}h10l-5,8z`} /><rect x=${place - 6} y="0" width="12" height=${height - BOTTOM} /><title>${mark.text}</title></g>`;
}

function Axes({ x, y, width, height, left, low, high, up, time, format }) {
  const wanted = Math.max(2, Math.floor(width / 120));
  const marks = time ? timeTicks(low, high, wanted) : { found: ticks(low, high, wanted), step: 0 };
  return html`<g class="axes">
    ${up.map((value) => html`<line class="grid" x1=${left} x2=${width - RIGHT} y1=${y(value)} y2=${y(value)} />
      <text x=${left - 8} y=${y(value) + 4} text-anchor="end">${format(value)}</text>`)}
    ${marks.found.filter((at) => x(at) < width - 26).map((at) => html`<text x=${x(at)} y=${height - 6} text-anchor="middle">${time ? timeLabel(at, marks.step) : compact(at)}</text>`)}
  </g>`;
}

function Cursor({ series, at, x, y, height }) {
  const place = x(nearest(series[0].points, at)[0]);
  return html`<g><line class="cursor" x1=${place} x2=${place} y1=${TOP} y2=${height - BOTTOM} />
    ${series.map((one) => {
      const [where, value] = nearest(one.points, at);
      return value !== null && html`<circle class=${"c" + one.colour} cx=${x(where)} cy=${y(value)} r="3.5" />`;
    })}</g>`;
}

function Tip({ series, at, x, width, time, format }) {
  const where = nearest(series[0].points, at)[0];
  const place = x(where);
  const side = place > width / 2 ? { right: width - place + 10 + "px" } : { left: place + 10 + "px" };
  const sorted = series
    .map((one) => [one, nearest(one.points, at)[1]])
    .sort((a, b) => (b[1] ?? -Infinity) - (a[1] ?? -Infinity))
    .slice(0, 10);
  return html`<div class="tip" style=${side}>
    <div class="dim">${time ? timeLabel(where, 1000) : compact(where)}</div>
    ${sorted.map(([one, value]) => html`<div class="row"><i class=${"swatch c" + one.colour}></i><span>${one.name}</span><b>${value === null ? "–" : format(value)}</b></div>`)}
  </div>`;
}

export function Legend({ series, note }) {
  return html`<div class="legend">${series.map((one) => html`<span key=${one.name}><i class=${"swatch c" + one.colour}></i>${one.name}</span>`)}
    ${note && html`<span><i class="swatch mark"></i>${note}</span>`}</div>`;
}

export const MOST_BARS = 200;

/** labels: [text]; series: [{name, values, colour}], one bar of each for each label. */
export function BarChart({ labels, series, height = 260, format = compact, label }) {
  const [element, width] = useWidth();
  const [hover, setHover] = useState(null);
  const names = labels.slice(0, MOST_BARS);
  const values = series.flatMap((one) => one.values.slice(0, MOST_BARS)).filter((v) => Number.isFinite(v));
  const base = values.reduce((a, b) => Math.min(a, b), 0);
  const most = values.reduce((a, b) => Math.max(a, b), 0);
  const y = linear([base, most > base ? most + (most - base) * 0.04 : base + 1], [height - BOTTOM - 12, TOP]);
  const up = ticks(base, most, 4, kindOf(format));
  const left = leftOf(up.map(format));
  const slot = (width - left - RIGHT) / Math.max(1, names.length);
  const bar = Math.max(1, Math.min(48, (slot * 0.76) / series.length));
  const every = Math.ceil(70 / Math.max(1, slot));
  const room = Math.max(3, Math.floor((slot * every) / 7));
  useEffect(() => setHover(null), [labels.length]);
  return html`<div class="chart" ref=${element}>
    ${width > 0 && html`<svg width=${width} height=${height} role="img" aria-label=${label} onMouseLeave=${() => setHover(null)}>
      <g class="axes">${up.map((value) => html`<line class="grid" x1=${left} x2=${width - RIGHT} y1=${y(value)} y2=${y(value)} />
        <text x=${left - 8} y=${y(value) + 4} text-anchor="end">${format(value)}</text>`)}
        ${names.map((name, i) => i % every === 0 && html`<text x=${left + slot * (i + 0.5)} y=${height - 10} text-anchor="middle">${name.length > room ? name.slice(0, room - 1) + "…" : name}</text>`)}</g>
      ${names.map((name, i) => html`<g key=${i} onMouseEnter=${() => setHover(i)}>
        <rect class=${"hit" + (hover === i ? " on" : "")} x=${left + slot * i} y=${TOP} width=${slot} height=${height - BOTTOM - 12 - TOP} />
        ${series.map((one, j) => {
          const value = one.values[i];
          if (!Number.isFinite(value)) return null;
          const x = left + slot * (i + 0.5) + (j - series.length / 2) * bar;
          return html`<rect class=${"bar c" + one.colour} x=${x} width=${Math.max(1, bar - 1)} y=${Math.min(y(value), y(0))} height=${Math.abs(y(value) - y(0))} />`;
        })}</g>`)}
    </svg>`}
    ${hover !== null && html`<div class="tip" style=${hover > names.length / 2 ? { right: width - left - slot * hover + "px" } : { left: left + slot * (hover + 1) + "px" }}>
      <div class="dim">${names[hover]}</div>
      ${series.map((one) => html`<div class="row"><i class=${"swatch c" + one.colour}></i><span>${one.name}</span><b>${Number.isFinite(one.values[hover]) ? format(one.values[hover]) : "–"}</b></div>`)}
    </div>`}
  </div>`;
}

export function Sparkline({ points, width = 96, height = 22, label }) {
  const values = points.map(([, value]) => value).filter((value) => value !== null);
  if (values.length < 2) return html`<svg width=${width} height=${height} aria-hidden="true"></svg>`;
  const x = linear([points[0][0], points[points.length - 1][0]], [1, width - 1]);
  const y = linear([0, values.reduce((a, b) => Math.max(a, b), 0) || 1], [height - 2, 2]);
  return html`<svg class="spark" width=${width} height=${height} role="img" aria-label=${label}><path d=${pathOf(points, x, y)} /></svg>`;
}
