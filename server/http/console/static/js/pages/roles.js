// Roles: who is a member of whom, as a picture, and what one of them may do, with what it inherits.

import { html } from "../../vendor/htm/preact.js";
import { rows, statements } from "../api.js";
import { catalog, closure } from "../catalog.js";
import * as format from "../format.js";
import { Graph } from "../graph.js";
import { usePoll, useShared } from "../poll.js";
import { go, link, objectLink } from "../router.js";
import { Badge, Card, Failure, Field, Icon, Loading, Page, Table } from "../ui.js";
import { useAnswer } from "./object.js";

const QUERIES = {
  roles: "SELECT id, oid, name, rolsuper, rolcanlogin, inherit FROM mz_roles ORDER BY name",
  members: "SELECT role_id, member FROM mz_role_members",
  counts: "SELECT grantee, count(*) AS n FROM mz_internal.mz_show_privileges GROUP BY grantee",
};
const SYSTEM = /^pg_/;

async function ask() {
  const answers = await statements(Object.values(QUERIES));
  const found = Object.fromEntries(Object.keys(QUERIES).map((name, i) => [name, answers[i]]));
  const within = new Map(); // the roles that each is a member of
  const members = new Map();
  for (const { role_id: role, member } of found.members) {
    within.set(member, [...(within.get(member) || []), role]);
    members.set(role, [...(members.get(role) || []), member]);
  }
  const byId = new Map(found.roles.map((role) => [role.id, role]));
  return { ...found, within, members, byId, rights: new Map(found.counts.map((c) => [c.grantee, Number(c.n)])) };
}

const about = (role) => [role.rolsuper && "superuser", role.rolcanlogin ? "may log in" : "no login", !role.inherit && "does not inherit"].filter(Boolean);

export function Roles({ route }) {
  const { data, error } = usePoll(ask, 4000);
  const { data: known } = useShared(catalog);
  if (!data) return html`<${Page} title="Roles">${error ? html`<${Failure} error=${error} />` : html`<${Loading} />`}</${Page}>`;
  const chosen = data.roles.find((role) => role.name === route.parts[0]);
  const missing = route.parts[0] && !chosen;
  return html`<${Page} title="Roles" wide>
    ${missing && html`<div class="none">There is no role ${route.parts[0]}: it may have been dropped or renamed.</div>`}
    <${Card} title="Members and their roles" aside=${html`<span class="dim">an arrow leads from a role to its members, who get its rights</span>`}>
      <${Picture} data=${data} chosen=${chosen} />
    </${Card}>
    ${chosen ? html`<${Role} key=${chosen.id} role=${chosen} data=${data} known=${known} />` : html`<${All} data=${data} known=${known} />`}
  </${Page}>`;
}

/** The roles of people, and those of the system that they are members of. */
function shownRoles(data) {
  const own = data.roles.filter((role) => !SYSTEM.test(role.name)).map((role) => role.id);
  return new Set(own.flatMap((id) => [...closure(id, data.within)]));
}

function Picture({ data, chosen }) {
  const shown = shownRoles(data);
  if (chosen) closure(chosen.id, data.within).forEach((id) => shown.add(id));
  const near = chosen && new Set([...closure(chosen.id, data.within), ...closure(chosen.id, data.members)]);
  const nodes = [...shown].map((id) => data.byId.get(id)).filter(Boolean).map((role) => {
    const rights = data.rights.get(role.name) || 0;
    return {
      id: role.id,
      title: role.name,
      kind: role.rolsuper ? "sink" : role.rolcanlogin ? "materialized-view" : "view",
      lines: [about(role).join(" · "), `${format.count(rights)} ${rights === 1 ? "right" : "rights"} of its own`],
      href: link("roles", [role.name]),
    };
  });
  const edges = [...data.within].flatMap(([member, roles]) => roles.map((role) => ({ from: role, to: member, busy: Boolean(near?.has(role) && near.has(member)) })));
  return html`<${Graph} nodes=${nodes} edges=${edges.filter((edge) => shown.has(edge.from) && shown.has(edge.to))} selected=${chosen?.id} label="Roles and their members" />`;
}

function All({ data, known }) {
  const shown = shownRoles(data);
  const names = (ids) => (ids || []).map((id) => data.byId.get(id)?.name).filter(Boolean);
  const columns = [
    { label: "Role", kind: "wrap", value: (role) => html`<a class="name" href=${link("roles", [role.name])}><${Icon} name="roles" />${role.name}</a>` },
    { label: "May", value: (role) => about(role).map((text) => html`<${Badge} key=${text}>${text}</${Badge}> `) },
    { label: "Member of", kind: "wrap", value: (role) => names(data.within.get(role.id)).join(", ") || html`<span class="dim">–</span>` },
    { label: "Members", kind: "wrap", value: (role) => names(data.members.get(role.id)).join(", ") || html`<span class="dim">–</span>` },
    { label: "Rights", kind: "number", value: (role) => format.count(data.rights.get(role.name) || 0) },
    { label: "Owns", kind: "number", value: (role) => (known ? format.count(known.list.filter((o) => o.owner_id === role.id && !o.system).length) : "–") },
  ];
  const list = data.roles.filter((role) => shown.has(role.id));
  return html`<${Card} title=${`${format.count(list.length)} ${list.length === 1 ? "role" : "roles"}`} flush><${Table} columns=${columns} rows=${list} rowKey=${(role) => role.id} label="Roles" /></${Card}>`;
}

function Role({ role, data, known }) {
  const through = [...closure(role.id, data.within)].map((id) => data.byId.get(id)).filter(Boolean);
  const grantees = [...through.map((each) => each.name), "PUBLIC"];
  const { data: rights, error } = useAnswer(
    () => rows(
      `SELECT grantee, database, schema, name, object_type, string_agg(privilege_type, ', ' ORDER BY privilege_type) AS rights
       FROM mz_internal.mz_show_privileges WHERE grantee = ANY ($1::text::text[])
       GROUP BY grantee, database, schema, name, object_type ORDER BY object_type, database, schema, name, grantee LIMIT 1000`,
      [`{${grantees.map((name) => `"${name.replace(/[\\"]/g, "\\$&")}"`).join(",")}}`],
    ),
    role.id + grantees.join("\u0000"),
  );
  const chips = (ids) => ((ids || []).length ? ids.map((id) => data.byId.get(id)).filter(Boolean).map((each) => html`<a class="chip" key=${each.id} href=${link("roles", [each.name])}><${Icon} name="roles" size="13" />${each.name}</a>`) : html`<span class="dim">none</span>`);
  const owned = (known?.list || []).filter((object) => object.owner_id === role.id && !object.system);
  const columns = [
    { label: "Object", kind: "wrap", value: (r) => [r.database, r.schema, r.name].filter((part) => part !== null).join(".") || html`<span class="dim">the system</span>` },
    { label: "Type", value: (r) => r.object_type },
    { label: "Rights", kind: "wrap", value: (r) => r.rights.split(", ").map((right) => html`<${Badge} key=${right}>${right}</${Badge}> `) },
    { label: "Through", value: (r) => (r.grantee === role.name ? "itself" : r.grantee === "PUBLIC" ? html`<span class="dim">everybody</span>` : html`<a href=${link("roles", [r.grantee])}>${r.grantee}</a>`) },
  ];
  return html`<${Card} title=${role.name} aside=${html`<button class="small" onClick=${() => go(link("roles"))}>All roles</button>`}>
      <dl class="fields">
        <${Field} label="May">${about(role).map((text) => html`<${Badge} key=${text}>${text}</${Badge}> `)}</${Field}>
        <${Field} label="Member of">${chips(data.within.get(role.id))}</${Field}>
        <${Field} label="Members">${chips(data.members.get(role.id))}</${Field}>
        <${Field} label="Owns">${owned.length ? html`${owned.slice(0, 20).map((o) => html`<a class="chip" key=${o.id} href=${objectLink(o)}><${Icon} name=${o.type} size="13" />${o.name}</a>`)}${owned.length > 20 && ` and ${owned.length - 20} more`}` : html`<span class="dim">nothing</span>`}</${Field}>
      </dl>
      ${role.rolsuper && html`<p class="dim">A superuser may do everything, whatever is granted.</p>`}
    </${Card}>
    <${Card} title="Rights" aside=${html`<span class="dim">its own, those of its roles, and those of everybody</span>`} flush>
      <${Failure} error=${error} />
      ${rights ? html`<${Table} columns=${columns} rows=${rights} label="Rights" empty="Nothing is granted." />` : !error && html`<${Loading} />`}
    </${Card}>`;
}
