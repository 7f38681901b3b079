// Connections to external systems and the secrets that they use: who owns and uses them, and whether
// the systems can be reached. The values of secrets are nowhere in the console: nobody can read them.

import { html, useState } from "../../vendor/htm/preact.js";
import { rows, statement } from "../api.js";
import { catalog } from "../catalog.js";
import * as format from "../format.js";
import { metrics } from "../metrics.js";
import { usePoll, useShared } from "../poll.js";
import { link, objectLink } from "../router.js";
import { quoteNames } from "../sql_text.js";
import { Card, CopyButton, Empty, Failure, Icon, Loading, Page, State, Table } from "../ui.js";

export function Connections() {
  const { data, error } = useShared(catalog);
  const { data: found } = useShared(metrics);
  if (!data) return html`<${Page} title="Connections">${error ? html`<${Failure} error=${error} />` : html`<${Loading} />`}</${Page}>`;
  const of = (type) => data.list.filter((object) => object.type === type);
  return html`<${Page} title="Connections">
    <${List} data=${data} found=${found} list=${of("connection")} />
    <${Secrets} data=${data} list=${of("secret")} />
    <${Leftovers} />
  </${Page}>`;
}

/** What dropped sources and sinks have left in other systems and is not removed yet. */
function Leftovers() {
  const { data, refresh } = usePoll(() => rows("SELECT id, name, type, leftover, dropped_at, tries, error, next_try_at FROM mz_internal.mz_leftovers ORDER BY dropped_at"), 3000);
  const [asked, setAsked] = useState(null); // the id of the one that may be given up
  const [failure, setFailure] = useState(null);
  if (!data?.length) return null;
  const giveUp = async (id) => {
    if (asked !== id) {
      setAsked(id);
      return;
    }
    setAsked(null);
    try {
      await statement("SELECT mz_forget_leftover($1)", [id]);
      setFailure(null);
    } catch (error) {
      setFailure(error);
    }
    refresh();
  };
  const columns = [
    { label: "Dropped", value: (each) => html`${each.type} <b>${each.name}</b>` },
    { label: "Has left", kind: "wrap", value: (each) => each.leftover },
    { label: "Since", value: (each) => `${format.ago(each.dropped_at)} ago` },
    { label: "Tries", kind: "number", value: (each) => format.count(each.tries) },
    { label: "", hidden: "Why it is still there", kind: "wrap", value: (each) => html`${each.error && html`<span class="bad-text">${each.error}</span>`} <span class="dim">${format.due(each.next_try_at)}</span>` },
    { label: "", hidden: "Give up", value: (each) => html`<button class=${"small" + (asked === each.id ? " danger" : "")} onClick=${() => giveUp(each.id)} title="Nobody removes it there any more">${asked === each.id ? "Leave it there?" : "Give up"}</button>` },
  ];
  return html`<${Card} title="Left in other systems by what was dropped" aside=${html`<span class="dim">it is removed in the background</span>`} flush>
    <${Failure} error=${failure} />
    <${Table} columns=${columns} rows=${data} rowKey=${(each) => each.id} label="Leftovers" /></${Card}>`;
}

const named = (object) => html`<a class="name" href=${objectLink(object)}><${Icon} name=${object.type} />${object.name}</a><small class="dim"> ${object.database_name}.${object.schema_name}</small>`;

function List({ data, found, list }) {
  const columns = [
    { label: "Connection", kind: "wrap", value: named },
    { label: "Reaches", value: (c) => c.reaches },
    { label: "Owner", value: (c) => c.owner },
    { label: "Used by", kind: "wrap", value: (c) => html`<${Users} data=${data} found=${found} id=${c.id} />` },
    { label: "Now", kind: "wrap", value: (c) => html`<${Validate} object=${c} />` },
  ];
  return html`<${Card} title="Connections to external systems" flush>
    ${list.length
      ? html`<${Table} columns=${columns} rows=${list} rowKey=${(c) => c.id} label="Connections" />`
      : html`<${Empty} title="There is no connection">Sources and sinks reach Kafka, PostgreSQL and buckets by connections: CREATE CONNECTION in the <a href=${link("sql")}>SQL editor</a>.</${Empty}>`}
  </${Card}>`;
}

function Secrets({ data, list }) {
  const columns = [
    { label: "Secret", kind: "wrap", value: named },
    { label: "Owner", value: (s) => s.owner },
    { label: "Used by", kind: "wrap", value: (s) => html`<${Users} data=${data} id=${s.id} />` },
  ];
  return html`<${Card} title="Secrets" aside=${html`<span class="dim">their values cannot be read back</span>`} flush>
    <${Table} columns=${columns} rows=${list} rowKey=${(s) => s.id} label="Secrets" empty="There is no secret." />
  </${Card}>`;
}

/** What uses an object, with the states of sources and sinks. */
function Users({ data, found, id }) {
  const users = (data.usedBy.get(id) || []).map((user) => data.objects.get(user));
  if (!users.length) return html`<span class="dim">nothing</span>`;
  const states = new Map([...(found?.sources || []), ...(found?.sinks || [])].map((each) => [each.id, each]));
  return users.map((user) => html`<a class="chip" key=${user.id} href=${objectLink(user)} title=${states.get(user.id)?.error || format.kindName(user.type)}>
    <${Icon} name=${user.type} size="13" /><span class="cut">${user.name}</span>${states.has(user.id) && html` <${State} state=${states.get(user.id).status} />`}</a>`);
}

/** A button that reaches a connection's system, and what came of it. */
export function Validate({ object }) {
  const [done, setDone] = useState({});
  const run = async () => {
    setDone({ busy: true });
    const began = performance.now();
    try {
      await statement(`VALIDATE CONNECTION ${quoteNames(object.database_name, object.schema_name, object.name)}`);
      setDone({ ms: performance.now() - began });
    } catch (error) {
      setDone({ error });
    }
  };
  return html`<div class="validate">
    <button class="small" disabled=${done.busy} onClick=${run} aria-label=${`Validate ${object.name}`}>${done.busy ? "Validating …" : "Validate"}</button>
    <span role="status">${done.ms !== undefined && html`<${State} state="ready" /> <small class="dim">reached in ${format.duration(done.ms)}</small>`}</span>
    <${Failure} error=${done.error} />
  </div>`;
}

/** The public keys of a connection to an SSH server, for its authorized_keys. */
export function PublicKeys({ object }) {
  const { data, error } = usePoll(() => rows("SELECT public_key_1, public_key_2 FROM mz_ssh_tunnel_connections WHERE id = $1", [object.id]), 10000, object.id);
  if (error && !data) return html`<${Failure} error=${error} />`;
  if (!data?.length) return null;
  return html`<${Card} title="Public keys, for authorized_keys of the SSH server">
    <div class="sql-text"><pre tabindex="0">${`${data[0].public_key_1}\n${data[0].public_key_2}`}</pre><${CopyButton} text=${`${data[0].public_key_1}\n${data[0].public_key_2}\n`} /></div>
  </${Card}>`;
}
