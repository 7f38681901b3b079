// How clients connect to this server: ready texts with its address, for programs, tools and agents.

import { html, useEffect, useState } from "../../vendor/htm/preact.js";
import { rows } from "../api.js";
import { CopyButton, Dialog, Sql } from "../ui.js";

const DEFAULT_PORT = 6875;
const TOKEN = "fst_…";

/** Parts of an address as its places need them. */
function places({ host, port, role, database }) {
  const name = host.includes(":") ? `[${host.replace(/[[\]]/g, "")}]` : host;
  return { url: `postgres://${encodeURIComponent(role)}@${name}:${port}/${encodeURIComponent(database)}`, name };
}

const psql = (at) => [["A terminal", `psql ${places(at).url}`]];

const python = (at) => [
  ["psycopg 3: pip install 'psycopg[binary]'", `import psycopg

with psycopg.connect("${places(at).url}") as connection:
    for row in connection.execute("SELECT 1"):
        print(row)`],
  ["Follow a view as it changes", `with psycopg.connect("${places(at).url}") as connection:
    for row in connection.cursor().stream("SUBSCRIBE TO totals"):
        print(row)`],
];

const jdbc = (at) => [
  ["The URL, with the driver of PostgreSQL (org.postgresql:postgresql)", `jdbc:postgresql://${places(at).name}:${at.port}/${encodeURIComponent(at.database)}?user=${encodeURIComponent(at.role)}`],
  ["Java", `try (var connection = DriverManager.getConnection(url);
     var rows = connection.createStatement().executeQuery("SELECT 1")) {
  while (rows.next()) System.out.println(rows.getInt(1));
}`],
];

const node = (at) => [
  ["node-postgres: npm install pg", `import pg from "pg";

const client = new pg.Client({ connectionString: "${places(at).url}" });
await client.connect();
console.log((await client.query("SELECT 1 AS one")).rows);
await client.end();`],
  ["A live query, in a browser or in Node", `import { live } from "${at.http}/foreshore.js";

const totals = live("SELECT * FROM totals", { url: "${at.http}", onChange: (copy) => console.log(copy.rows()) });`],
];

const bi = (at) => [
  ["Metabase, Superset, Grafana, Tableau, Power BI, DBeaver: add a PostgreSQL database", `Host      ${at.host}
Port      ${at.port}
Database  ${at.database}
User      ${at.role}
SSL       off, unless the server has a certificate`],
  ["As a SQLAlchemy URI (Superset)", places(at).url.replace("postgres:", "postgresql+psycopg2:")],
];

const agents = (at) => [
  ["A role for agents, with a token: it is shown once", `CREATE ROLE assistant LOGIN CONNECTION LIMIT 5;
GRANT SELECT ON totals TO assistant;
CREATE TOKEN agent FOR assistant;`, "sql"],
  ["The configuration of a client of the Model Context Protocol", JSON.stringify(
    { mcpServers: { foreshore: { type: "http", url: `${at.http}/api/mcp/agent`, headers: { Authorization: `Bearer ${TOKEN}` } } } }, null, 2)],
  ["For people who build views, the same with the address", `${at.http}/api/mcp/developer`],
];

const web = (at) => [
  ["A token: it is shown once", `CREATE TOKEN program VALID UNTIL '${nextYear()}';`, "sql"],
  ["With the token", `curl ${at.http}/api/sql -H 'Authorization: Bearer ${TOKEN}' \\
  -H 'Content-Type: application/json' -d '{"query": "SELECT 1"}'`],
  ["With a password, which curl asks for", `curl ${at.http}/api/sql -u '${at.role.replaceAll("'", "'\\''")}' \\
  -H 'Content-Type: application/json' -d '{"query": "SELECT 1"}'`],
  ["Changes as server-sent events", `curl -N -G ${at.http}/api/subscribe -H 'Authorization: Bearer ${TOKEN}' \\
  --data-urlencode 'query=SELECT * FROM totals'`],
];

const nextYear = () => `${new Date().getFullYear() + 1}-01-01`;

const WAYS = [
  ["psql", "psql", psql],
  ["python", "Python", python],
  ["jdbc", "JDBC", jdbc],
  ["node", "Node", node],
  ["bi", "BI tools", bi],
  ["agents", "Agents (MCP)", agents],
  ["http", "HTTP", web],
];

export function Connect({ here, onClose }) {
  const [port, setPort] = useState(DEFAULT_PORT);
  const [chosen, setChosen] = useState("psql");
  useEffect(() => {
    rows("SELECT setting FROM pg_settings WHERE name = 'port'").then(
      (found) => found[0] && setPort(found[0].setting),
      () => setPort(DEFAULT_PORT),
    );
  }, []);
  const at = { host: location.hostname, port, role: here?.role || "foreshore", database: here?.database || "foreshore", http: location.origin };
  const [, , texts] = WAYS.find(([id]) => id === chosen);
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const place = WAYS.findIndex(([id]) => id === chosen);
    setChosen(WAYS[(place + step + WAYS.length) % WAYS.length][0]);
    requestAnimationFrame(() => event.target.parentNode?.querySelector("[aria-selected=true]")?.focus());
  };
  return html`<${Dialog} title="Connect" onClose=${onClose}>
    <div class="tabs compact" role="tablist" aria-label="With" onKeyDown=${move}>${WAYS.map(([id, name]) => html`<button key=${id} role="tab"
      aria-selected=${id === chosen ? "true" : "false"} tabindex=${id === chosen ? 0 : -1} onClick=${() => setChosen(id)}>${name}</button>`)}</div>
    ${texts(at).map(([name, text, kind]) => html`<h3>${name}</h3>${kind === "sql"
      ? html`<${Sql} text=${text} />`
      : html`<div class="sql-text"><pre tabindex="0">${text}</pre><${CopyButton} text=${text} /></div>`}`)}
    <p class="dim">SQL is served at port ${port}, the web at ${at.http}.</p>
  </${Dialog}>`;
}
