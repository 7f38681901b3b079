// All objects: a tree by database and schema, the graph of who is made of what, and one object.

import { html, useEffect, useRef, useState } from "../../vendor/htm/preact.js";
import { catalog, compare } from "../catalog.js";
import * as format from "../format.js";
import { Graph } from "../graph.js";
import { healths, metrics, worst } from "../metrics.js";
import { useShared } from "../poll.js";
import { link, objectLink, objectParts, setQuery } from "../router.js";
import { Card, Empty, Failure, Icon, Loading, Page, State, stateKind, Table } from "../ui.js";
import { FirstSteps } from "./first_steps.js";
import { ObjectPage } from "./object.js";

const ORDER = ["materialized-view", "view", "table", "source", "sink", "index", "connection", "secret", "type", "sequence", "function"];

export function Objects({ route }) {
  const { data, error } = useShared(catalog);
  if (!data) return html`<${Page} title="Objects">${error ? html`<${Failure} error=${error} />` : html`<${Loading} />`}</${Page}>`;
  const [database, schema, name] = route.parts[0] ? objectParts(route.parts[0]) : [];
  const object = route.parts[0] && data.list.find((o) => o.database_name === database && o.schema_name === schema && o.name === name);
  return html`<div class=${"split" + (route.parts[0] ? " chosen" : "")}>
    <${Tree} data=${data} chosen=${object} />
    ${object && html`<${ObjectPage} key=${object.id} object=${object} data=${data} route=${route} />`}
    ${route.parts[0] && !object && html`<${Page} title="Objects" wide><${Empty} title=${`${objectParts(route.parts[0]).join(".")} does not exist`}>It may have been dropped or renamed.</${Empty}></${Page}>`}
    ${!route.parts[0] && html`<${All} data=${data} route=${route} />`}
  </div>`;
}

function groups(data, find) {
  const wanted = find.toLowerCase();
  const found = new Map();
  for (const schema of data.schemas) found.set(schema.database + "\u0000" + schema.name, { ...schema, objects: [] });
  for (const object of data.list) {
    const group = found.get(object.database_name + "\u0000" + object.schema_name);
    if (group && object.name.toLowerCase().includes(wanted)) group.objects.push(object);
  }
  const here = data.here[0].database;
  return [...found.values()]
    .filter((group) => group.objects.length || !wanted)
    .sort((a, b) => (b.database === here) - (a.database === here) || compare(a.database, b.database) || compare(a.name, b.name));
}

const MOST_SHOWN = 300;
const MOST_DRAWN = 150; // objects that are a graph unless a list is asked for

function Tree({ data, chosen }) {
  const [find, setFind] = useState("");
  const [closed, setClosed] = useState(new Set());
  const tree = useRef(null);
  // Bring the object that is shown into view, without moving the page.
  useEffect(() => {
    const row = tree.current.querySelector(".object[aria-current=page]");
    if (!row) return;
    const away = row.getBoundingClientRect().top - tree.current.getBoundingClientRect().top;
    if (away < 0 || away > tree.current.clientHeight - row.clientHeight) tree.current.scrollTop += away - tree.current.clientHeight / 2;
  }, [chosen?.id]);
  const toggle = (key) => {
    const next = new Set(closed);
    if (!next.delete(key)) next.add(key);
    setClosed(next);
  };
  return html`<aside class="tree" aria-label="Objects" ref=${tree}>
    <label class="search"><${Icon} name="search" size="14" /><input type="search" placeholder="Filter objects" aria-label="Filter objects" value=${find} onInput=${(e) => setFind(e.target.value)} /></label>
    <a class=${"row all" + (chosen ? "" : " on")} href=${link("objects")}><${Icon} name="objects" />All objects</a>
    ${groups(data, find).map((group) => {
      const key = group.database + "." + group.name;
      const open = !closed.has(key);
      return html`<div key=${key}>
        <button class="row schema" aria-expanded=${open ? "true" : "false"} onClick=${() => toggle(key)}>
          <span class=${"fold" + (open ? " open" : "")}><${Icon} name="right" size="12" /></span><span>${group.database}.${group.name}</span><small>${group.objects.length}</small></button>
        ${open && listed(group.objects, chosen).map((object) => html`<a key=${object.id} class=${"row object" + (chosen?.id === object.id ? " on" : "")} href=${objectLink(object)} title=${format.kindName(object.type) + " " + object.name}
          aria-current=${chosen?.id === object.id ? "page" : null}><${Icon} name=${object.type} size="14" /><span>${object.name}</span></a>`)}
        ${open && group.objects.length > MOST_SHOWN && html`<div class="none">${group.objects.length - MOST_SHOWN} more: use the filter</div>`}
        ${open && !group.objects.length && html`<div class="none">empty</div>`}
      </div>`;
    })}
  </aside>`;
}

/** The first objects of a schema, and the one that is shown. */
function listed(objects, chosen) {
  return sorted(objects).filter((object, i) => i < MOST_SHOWN || object.id === chosen?.id);
}

function sorted(objects) {
  const rank = (object) => (ORDER.indexOf(object.type) + ORDER.length + 1) % (ORDER.length + 1);
  return [...objects].sort((a, b) => rank(a) - rank(b) || compare(a.name, b.name));
}

function All({ data, route }) {
  const { data: found } = useShared(metrics);
  const objects = data.list.filter((object) => !object.system);
  const shown = route.query.get("show") || (objects.length > MOST_DRAWN ? "list" : "graph");
  const choice = html`<div class="segments" role="group" aria-label="How to show objects">${[["graph", "Graph"], ["list", "List"]].map(
    ([id, name]) => html`<button class="small" aria-pressed=${shown === id} onClick=${() => setQuery({ show: id })}>${name}</button>`,
  )}</div>`;
  if (!objects.length) {
    return html`<${Page} title="Objects" wide><${FirstSteps} /></${Page}>`;
  }
  return html`<${Page} title="Objects" actions=${choice} wide>
    ${shown === "graph" ? html`<div class="page-graph"><${Workflow} data=${data} found=${found} ids=${new Set(objects.map((o) => o.id))} /></div>` : html`<${List} objects=${objects} data=${data} found=${found} />`}
  </${Page}>`;
}

/** What is said of an object in its box: the kind and its lag, in two lines where one is too short. */
function linesOf(object, lag, size, state) {
  const kind = format.kindName(object.type);
  const behind = lag !== undefined && object.type !== "table" ? [`lag ${format.duration(lag)}`] : [];
  const first = object.type === "materialized-view" ? [kind, ...behind] : [[kind, ...behind].join(" · ")];
  return [...first, ...(size ? [size] : []), ...(state ? [state] : [])];
}

/** The health of an object: its own, or of a view that is not kept itself, that of its indexes. */
function healthOf(object, data, health) {
  return worst([object.id, ...(object.type === "view" ? data.indexes.get(object.id) || [] : [])].map((id) => health.get(id)));
}

/** The objects `ids` and how they depend on each other, as a picture. */
export function Workflow({ data, found, ids, selected }) {
  const shown = [...ids].map((id) => data.objects.get(id)).filter(Boolean);
  const health = found ? healths(data, found) : new Map();
  const often = new Map();
  for (const { name } of shown) often.set(name, (often.get(name) || 0) + 1);
  const nodes = shown.map((object) => {
    const lag = found?.sample.lag.get(object.id);
    const memory = found?.sample.memory.get(object.id);
    const { state, failure } = healthOf(object, data, health) || {};
    const bad = stateKind(state) === "good" || !state ? null : stateKind(state) || "waiting";
    const size = [object.size !== null && format.bytes(object.size), memory && `${format.bytes(memory)} memory`].filter(Boolean).join(" · ");
    return {
      id: object.id,
      title: often.get(object.name) > 1 ? `${object.schema_name}.${object.name}` : object.name,
      kind: object.type,
      lines: linesOf(object, lag, size, bad && state),
      state: bad,
      href: objectLink(object),
      tip: [`${object.database_name}.${object.schema_name}.${object.name}`, bad && state, failure].filter(Boolean).join("\n"),
    };
  });
  const edges = [];
  for (const id of ids) for (const used of data.uses.get(id) || []) if (ids.has(used)) edges.push({ from: used, to: id });
  return html`<${Graph} nodes=${nodes} edges=${edges} selected=${selected} label="Objects and what they are made of" />`;
}

function List({ objects: all, data, found }) {
  const health = found ? healths(data, found) : new Map();
  const [find, setFind] = useState("");
  const wanted = find.toLowerCase();
  const objects = all.filter((o) => `${o.schema_name}.${o.name} ${format.kindName(o.type)} ${o.owner}`.toLowerCase().includes(wanted));
  const columns = [
    { label: "Name", by: (o) => o.name, value: (o) => html`<a class="name" href=${objectLink(o)}><${Icon} name=${o.type} />${o.name}</a>` },
    { label: "Type", by: (o) => format.kindName(o.type), value: (o) => format.kindName(o.type) },
    { label: "State", by: (o) => healthOf(o, data, health)?.state, value: (o) => html`<${State} state=${healthOf(o, data, health)?.state} title=${healthOf(o, data, health)?.failure} />` },
    { label: "Schema", by: (o) => `${o.database_name}.${o.schema_name}`, value: (o) => `${o.database_name}.${o.schema_name}` },
    { label: "Owner", by: (o) => o.owner, value: (o) => o.owner },
    { label: "Cluster", by: (o) => o.cluster, value: (o) => o.cluster || "–" },
    { label: "Size", kind: "number", by: (o) => o.size, value: (o) => format.bytes(o.size) },
    { label: "Memory", kind: "number", by: (o) => found?.sample.memory.get(o.id), value: (o) => format.bytes(found?.sample.memory.get(o.id)) },
    { label: "Lag", kind: "number", by: (o) => found?.sample.lag.get(o.id), value: (o) => format.duration(found?.sample.lag.get(o.id)) },
  ];
  return html`<label class="search"><${Icon} name="search" size="14" /><input type="search" placeholder="Find by name, type or owner" aria-label="Find in the list" value=${find} onInput=${(e) => setFind(e.target.value)} /></label>
    <${Card} title=${`${format.count(objects.length)} ${objects.length === 1 ? "object" : "objects"}`} flush><${Table} key=${find} columns=${columns} rows=${objects} rowKey=${(o) => o.id} label="Objects" empty="None has this in its name." /></${Card}>`;
}
