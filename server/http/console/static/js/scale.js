// Axes of charts: round numbers and round times, and the way from a value to a place.

export function linear([low, high], [from, to]) {
  const span = high - low || 1;
  return (value) => from + ((value - low) / span) * (to - from);
}

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const STEPS = [
  SECOND, 5 * SECOND, 15 * SECOND, 30 * SECOND, MINUTE, 5 * MINUTE, 15 * MINUTE, 30 * MINUTE,
  HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 7 * DAY, 30 * DAY, 91 * DAY, 365 * DAY,
];
// Steps between lengths of time: round in the unit in which they are shown.
const SPANS = [
  ...[1, 2, 5, 10, 20, 50, 100, 200, 500], ...[1, 2, 5, 10, 15, 30].map((n) => n * SECOND),
  ...[1, 2, 5, 10, 15, 30].map((n) => n * MINUTE), ...[1, 2, 3, 6, 12].map((n) => n * HOUR), DAY,
];

/** About `wanted` round numbers within [low, high], of "bytes" or of "durations" in ms if they are such. */
export function ticks(low, high, wanted = 4, of = null) {
  if (!(high > low)) return [low];
  const rough = (high - low) / wanted;
  const spans = of === "durations" && rough >= 1 && rough < 2 * DAY;
  const off = (size) => Math.abs((high - low) / size - wanted);
  const step = (spans ? SPANS : roundSteps(rough, of)).reduce((best, size) => (off(size) < off(best) ? size : best));
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i += 1) found.push(i * step || 0);
  return found;
}

function roundSteps(rough, of) {
  const unit = of === "bytes" ? 1024 ** Math.max(0, Math.floor(Math.log(rough) / Math.log(1024))) : of === "durations" && rough >= DAY ? DAY : 1;
  const power = unit * 10 ** Math.floor(Math.log10(rough / unit));
  return [1, 2, 5, 10].map((size) => size * power);
}

export function timeTicks(low, high, wanted = 5) {
  const rough = (high - low) / wanted;
  const step = STEPS.find((size) => size >= rough) || Math.ceil(rough / (365 * DAY)) * 365 * DAY;
  const shift = step < DAY ? new Date(low).getTimezoneOffset() * MINUTE : 0;
  const found = [];
  for (let t = Math.ceil((low - shift) / step) * step + shift; t <= high; t += step) found.push(t);
  return { step, found };
}

export function timeLabel(t, step) {
  const date = new Date(t);
  if (step >= DAY) return date.toISOString().slice(0, 10);
  const clock = date.toLocaleTimeString("en-GB");
  return step >= MINUTE ? clock.slice(0, 5) : clock;
}
