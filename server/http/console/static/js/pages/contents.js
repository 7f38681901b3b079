// The rows of a relation, live: a subscription to its first rows, kept as a copy in the page.

import { html, useEffect, useRef, useState } from "../../vendor/htm/preact.js";
import { statement } from "../api.js";
import { compact } from "../format.js";
import { Grid } from "../grid.js";
import { Copy } from "../live_copy.js";
import { objectLink } from "../router.js";
import { Session } from "../socket.js";
import { quoteName } from "../sql_text.js";
import { Badge, Empty, Failure, Icon, Loading } from "../ui.js";

const LIMITS = [100, 500, 2000];
const PAINT_MS = 250;
const RETRY_MS = 2000;

export function Contents({ object, data, name }) {
  // A table's first rows are read once; to follow them would read all of it.
  const [live, setLive] = useState(object.type !== "table" && object.type !== "source");
  const [limit, setLimit] = useState(LIMITS[1]);
  return html`<div class="contents">
    <div class="bar">
      <div class="segments" role="group" aria-label="How to read">
        <button class="small" aria-pressed=${live} onClick=${() => setLive(true)}>Live</button>
        <button class="small" aria-pressed=${!live} onClick=${() => setLive(false)}>Once</button>
      </div>
      <label class="inline">First <select value=${limit} onChange=${(e) => setLimit(Number(e.target.value))}>${LIMITS.map((n) => html`<option value=${n}>${n}</option>`)}</select> rows</label>
      ${live ? html`<${Live} key=${name + limit} name=${name} limit=${limit} />` : html`<${Once} key=${name + limit} object=${object} data=${data} name=${name} limit=${limit} />`}
    </div>
  </div>`;
}

function Once({ object, data, name, limit }) {
  const [state, setState] = useState({});
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    let here = true;
    statement(`SELECT * FROM ${name} LIMIT ${limit}`).then(
      (result) => here && setState({ result, turn }),
      (error) => here && setState({ error }),
    );
    return () => (here = false);
  }, [turn]);
  if (state.error) return html`<${Failure} error=${state.error} />`;
  if (!state.result) return html`<${Loading} />`;
  if (object.type === "source" && !state.result.desc.columns.length) return html`<div class="below"><${TablesOf} object=${object} data=${data} /></div>`;
  return html`<span class="dim">${state.result.rows.length} rows</span><button class="small" onClick=${() => setTurn(turn + 1)}>Read again</button>
    <div class="below"><${Grid} columns=${state.result.desc.columns} rows=${state.result.rows} version=${state.turn} label="Contents" /></div>`;
}

/** What a source without rows of its own writes into. */
function TablesOf({ object, data }) {
  const all = (data.usedBy.get(object.id) || []).map((id) => data.objects.get(id)).filter((other) => other?.type === "source" || other?.type === "table");
  const tables = all.filter((table) => table.name !== `${object.name}_progress`);
  if (!tables.length) {
    return html`<${Empty} title="This source has no table yet">
      Its rows go into tables: make one by <code>CREATE TABLE … FROM SOURCE ${quoteName(object.name)} (REFERENCE …)</code>, or the source anew with <code>FOR ALL TABLES</code>.</${Empty}>`;
  }
  return html`<${Empty} title="The rows of this source are in its tables">
    ${tables.map((table) => html`<a class="chip" key=${table.id} href=${objectLink(table)}><${Icon} name="source" size="13" />${table.name}</a>`)}
  </${Empty}>`;
}

function Live({ name, limit }) {
  const [shown, setShown] = useState(null);
  const [failure, setFailure] = useState(null);
  const alive = useRef(true);
  useEffect(() => {
    alive.current = true;
    const following = follow(`SUBSCRIBE (SELECT * FROM ${name} LIMIT ${limit}) WITH (PROGRESS)`, {
      show: (state) => alive.current && (setShown(state), setFailure(null)),
      fail: (error) => alive.current && setFailure(error),
    });
    return () => {
      alive.current = false;
      following.stop();
    };
  }, []);
  if (!shown) return failure ? html`<${Failure} error=${failure} />` : html`<${Loading} />`;
  return html`<${Badge} kind=${failure ? "dot bad" : "dot good"}>${failure ? "not connected" : "live"}</${Badge}>
    <span class="dim" data-testid="live-count">${shown.rows.length} rows, ${compact(shown.changes)} changes</span>
    <div class="below">
      <${Failure} error=${failure} />
      <${Grid} columns=${shown.columns} rows=${shown.rows} version=${shown.version} label="Contents, live" />
    </div>`;
}

/** Subscribe, paint at most each PAINT_MS, begin again when the connection is lost. */
function follow(text, { show, fail }) {
  let stopped = false;
  let session = null;
  let retry = null;
  const begin = () => {
    if (stopped) return;
    let copy = null;
    let columns = null;
    let timer = null;
    let refused = false;
    const paint = () => {
      timer = null;
      if (!stopped) show({ columns, rows: copy.sorted(), changes: copy.changes, version: copy.version });
    };
    session = new Session();
    session.run(text, {
      columns: (found) => {
        copy = new Copy(found);
        columns = copy.columns;
      },
      rows: (rows) => {
        let whole = false;
        for (const row of rows) whole = copy.take(row);
        // The copy is right only after a progress row: wait for it.
        if (whole && timer === null) timer = setTimeout(paint, PAINT_MS);
      },
      error: (error) => {
        refused = true;
        fail({ message: error.message, fields: error });
      },
      ready: () => session.close(),
      ended: (message) => {
        if (stopped) return;
        if (!refused) fail({ message: `${message} Trying again.` });
        retry = setTimeout(begin, refused ? RETRY_MS * 5 : RETRY_MS);
      },
    });
  };
  begin();
  return {
    stop: () => {
      stopped = true;
      clearTimeout(retry);
      session?.close();
    },
  };
}
