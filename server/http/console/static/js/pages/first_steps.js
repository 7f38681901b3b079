// What one may do first in an empty database: statements that go into the editor, where they are run.

import { html } from "../../vendor/htm/preact.js";
import { link } from "../router.js";
import { Card, Sql } from "../ui.js";

const STEPS = [
  {
    name: "A table, and a view that follows it",
    note: "Insert more rows while you look at the view: its contents change by themselves.",
    text: `CREATE TABLE orders (id int PRIMARY KEY, item text, amount int);
CREATE MATERIALIZED VIEW totals AS
  SELECT item, sum(amount) AS total FROM orders GROUP BY item;
INSERT INTO orders VALUES (1, 'tea', 3), (2, 'coffee', 4), (3, 'tea', 2);
SELECT * FROM totals;`,
  },
  {
    name: "A source",
    note: "Tables of another PostgreSQL, by logical replication; put your server and publication in. Kafka, files, webhooks and Iceberg work alike.",
    text: `CREATE SECRET pg_password AS 'the password';
CREATE CONNECTION pg TO POSTGRES
  (HOST 'db.example.com', DATABASE 'shop', USER 'reader', PASSWORD SECRET pg_password);
CREATE SOURCE shop FROM POSTGRES CONNECTION pg (PUBLICATION 'foreshore') FOR ALL TABLES;`,
  },
  {
    name: "The demo",
    note: "Auctions that make themselves up, with a view of the highest bids. In a terminal, foreshore demo replays a year of flights.",
    text: `CREATE SOURCE demo FROM LOAD GENERATOR AUCTION (TICK INTERVAL '200 ms') FOR ALL TABLES;
CREATE MATERIALIZED VIEW highest_bids AS
  SELECT a.id, a.item, count(*) AS bids, max(b.amount) AS highest
  FROM auctions a JOIN bids b ON b.auction_id = a.id GROUP BY a.id, a.item;`,
  },
];

/** Whether nobody has made anything yet, in any database. */
export const isEmpty = (data) => !data.list.some((object) => !object.system);

export function FirstSteps() {
  return html`<div class="steps" data-testid="first-steps">
    <p>There is nothing here yet. Begin with one of these: it is put into the editor, and <kbd>Ctrl Enter</kbd> runs it.</p>
    ${STEPS.map(({ name, note, text }) => html`<${Card} key=${name} title=${name} aside=${html`<a class="button small primary" href=${link("sql", [], { q: text })}>Open in the editor</a>`}>
      <p class="dim">${note}</p><${Sql} text=${text} /></${Card}>`)}
  </div>`;
}
