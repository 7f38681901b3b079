// How clients connect to this server.

import { html, useEffect, useState } from "../../vendor/htm/preact.js";
import { rows } from "../api.js";
import { CopyButton, Dialog } from "../ui.js";

const DEFAULT_PORT = 6875;

function ways({ host, port, role, database, http }) {
  const quoted = encodeURIComponent(role);
  const url = `postgres://${quoted}@${host}:${port}/${encodeURIComponent(database)}`;
  return [
    ["psql", `psql ${url}`],
    ["Python (psycopg)", `import psycopg\n\nwith psycopg.connect("${url}") as connection:\n    print(connection.execute("SELECT 1").fetchone())`],
    ["JDBC", `jdbc:postgresql://${host}:${port}/${encodeURIComponent(database)}?user=${quoted}`],
    ["HTTP", `curl ${http}/api/sql -u ${role} -H 'Content-Type: application/json' \\\n  -d '{"query": "SELECT 1"}'`],
    ["A live query in a browser", `import { live } from "${http}/foreshore.js";`],
  ];
}

export function Connect({ here, onClose }) {
  const [port, setPort] = useState(DEFAULT_PORT);
  useEffect(() => {
    rows("SELECT setting FROM pg_settings WHERE name = 'port'").then(
      (found) => found[0] && setPort(found[0].setting),
      () => setPort(DEFAULT_PORT),
    );
  }, []);
  const place = { host: location.hostname, port, role: here?.role || "foreshore", database: here?.database || "foreshore", http: location.origin };
  return html`<${Dialog} title="Connect" onClose=${onClose}>
    <p>Clients of PostgreSQL connect at the SQL port, programs for the web at this one. The port shown is the usual one;
      ask who runs the server if it is another.</p>
    ${ways(place).map(([name, text]) => html`<h3>${name}</h3><div class="sql-text"><pre>${text}</pre><${CopyButton} text=${text} /></div>`)}
  </${Dialog}>`;
}
