// A source or a sink over time: rows, bytes and lag, the states that it had, and its errors.

import { html } from "../../vendor/htm/preact.js";
import { rows } from "../api.js";
import { Legend, LineChart } from "../chart.js";
import * as format from "../format.js";
import { usePoll } from "../poll.js";
import { setQuery } from "../router.js";
import { Card, Failure, Loading, State, Table, Tile } from "../ui.js";

const SPANS = { minutes: ["15 minutes", "15 minutes", 2500], hours: ["3 hours", "3 hours", 15000], all: ["All", "7 days", 30000] };
const MOST_STATES = 200;
const LAGS = {
  source: { column: "offset_lag", title: "Offsets behind the external system", empty: "The system has no offsets, or nothing was read yet", format: format.compact },
  sink: { column: "lag_ms", title: "Lag of the target", empty: "Nothing was written yet", format: format.duration },
};

function ask(object, interval) {
  const kind = object.type;
  const at = "(extract(epoch FROM occurred_at) * 1000)::float8 AS t";
  return async () => {
    const [samples, states, statistics] = await Promise.all([
      rows(
        `SELECT ${at}, updates_committed::float8 AS updates, bytes_committed::float8 AS bytes, ${LAGS[kind].column}::float8 AS lag
         FROM mz_internal.mz_${kind}_statistics_history WHERE id = $1 AND occurred_at > now() - $2::text::interval ORDER BY occurred_at`,
        [object.id, interval],
      ),
      rows(
        `SELECT occurred_at, ${at}, status, error FROM mz_internal.mz_${kind}_status_history
         WHERE ${kind}_id = $1 ORDER BY occurred_at DESC LIMIT ${MOST_STATES}`,
        [object.id],
      ),
      rows(`SELECT *${kind === "sink" ? ", (extract(epoch FROM lag) * 1000)::float8 AS lag_ms" : ""} FROM mz_internal.mz_${kind}_statistics WHERE id = $1`, [object.id]),
    ]);
    return { samples, states, statistics: statistics[0] };
  };
}

/** [[t, per second]] of a count that grows; a gap where the server was started anew. */
export function perSecond(samples, name) {
  return samples.slice(1).map((sample, i) => {
    const seconds = (sample.t - samples[i].t) / 1000;
    const more = sample[name] - samples[i][name];
    return [sample.t, seconds > 0 && more >= 0 ? more / seconds : null];
  });
}

export function Activity({ object, route }) {
  const span = SPANS[route.query.get("span")] ? route.query.get("span") : "minutes";
  const [, interval, every] = SPANS[span];
  const { data, error } = usePoll(ask(object, interval), every, object.id + span);
  if (!data) return error ? html`<${Failure} error=${error} />` : html`<${Loading} />`;
  const choice = html`<div class="segments" role="group" aria-label="Time shown">${Object.entries(SPANS).map(
    ([id, [name]]) => html`<button key=${id} class="small" aria-pressed=${id === span} onClick=${() => setQuery({ span: id })}>${name}</button>`,
  )}</div>`;
  const marks = data.states.filter((state) => state.error).map((state) => ({ at: state.t, text: `${state.status}: ${state.error}` }));
  const { title, empty, format: lagFormat } = LAGS[object.type];
  const lag = data.samples.filter((sample) => sample.lag !== null).map((sample) => [sample.t, sample.lag]);
  return html`
    <${Statistics} of=${data.statistics} kind=${object.type} />
    <${Chart} title="Rows per second" aside=${choice} points=${perSecond(data.samples, "updates")} marks=${marks} />
    <div class="two">
      <${Chart} title="Bytes per second" points=${perSecond(data.samples, "bytes")} format=${format.bytes} marks=${marks} />
      <${Chart} title=${title} points=${lag} empty=${empty} format=${lagFormat} marks=${marks} />
    </div>
    <${States} states=${data.states} />`;
}

function Chart({ title, aside, points, marks, empty = "Measuring …", format: shown = format.compact }) {
  const series = [{ name: title, colour: 0, points }];
  return html`<${Card} title=${title} aside=${aside}>
    <${LineChart} series=${series} format=${shown} height=${150} label=${title} empty=${empty} marks=${marks} />
    ${marks.length > 0 && points.length > 1 && html`<${Legend} series=${[]} note="an error" />`}
  </${Card}>`;
}

function Statistics({ of, kind }) {
  if (!of) return html`<div class="none">It has no statistics yet.</div>`;
  const tiles = kind === "source"
    ? [
        ["Rows written", format.compact(of.updates_committed), `${format.compact(of.updates_staged)} received`],
        ["Messages", format.compact(of.messages_received), format.bytes(of.bytes_received)],
        ["Offsets", of.offset_committed === null ? "–" : format.count(of.offset_committed), of.offset_known === null ? "not known" : `of ${format.count(of.offset_known)}`],
        ["Snapshot", of.snapshot_committed ? "complete" : "running", of.snapshot_records_known === null ? "" : `${format.count(of.snapshot_records_staged)} of ${format.count(of.snapshot_records_known)} rows`],
      ]
    : [
        ["Rows written", format.compact(of.messages_committed), `${format.compact(of.messages_staged)} sent`],
        ["Bytes", format.bytes(of.bytes_committed), `${format.bytes(of.bytes_staged)} sent`],
        ["Lag", format.duration(of.lag_ms), "behind the clock"],
      ];
  return html`<div class="tiles">${tiles.map(([label, value, note]) => html`<${Tile} key=${label} label=${label} value=${value} note=${note} title=${note} />`)}</div>`;
}

function States({ states }) {
  const columns = [
    { label: "Since", value: (s) => html`${format.when(format.moment(s.occurred_at))}<small class="dim"> ${format.ago(s.occurred_at)} ago</small>` },
    { label: "State", value: (s) => html`<${State} state=${s.status} />` },
    { label: "Error", kind: "wrap", value: (s) => (s.error ? html`<span class="bad-text">${s.error}</span>` : html`<span class="dim">–</span>`) },
  ];
  return html`<${Card} title="States since the start of the server" flush>
    <${Table} columns=${columns} rows=${states} rowKey=${(s) => s.occurred_at + s.status + s.error} label="States" empty="It has no state yet." />
  </${Card}>`;
}
