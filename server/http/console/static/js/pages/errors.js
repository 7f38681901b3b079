// Why reads of a relation fail: the errors in its data and whose they are, its expectations, and what a source could not decode.

import { html } from "../../vendor/htm/preact.js";
import { rows, SqlError, statement } from "../api.js";
import * as format from "../format.js";
import { Grid } from "../grid.js";
import { usePoll } from "../poll.js";
import { link, objectLink } from "../router.js";
import { quoteNames } from "../sql_text.js";
import { Card, Failure, Icon, Loading, Table } from "../ui.js";

const FORBIDDEN = "42501"; // insufficient_privilege
const MOST_PAST = 100;
const MOST_UNDECODED = 100;

/** The last changes of the least error; null for roles that may not read them. */
async function past(id) {
  try {
    return await rows(
      `SELECT at::text::float8 AS t, sqlstate, error FROM mz_internal.mz_materialized_view_errors
       WHERE object_id = $1 ORDER BY at DESC LIMIT ${MOST_PAST}`,
      [id],
    );
  } catch (error) {
    if (error instanceof SqlError && error.fields.code === FORBIDDEN) return null;
    throw error;
  }
}

/** The violations of each expectation; none are known while the view that counts them fails too. */
async function violations(counting) {
  if (!counting) return new Map();
  try {
    const found = await rows(`SELECT expectation, violations FROM ${quoteNames(counting.database_name, counting.schema_name, counting.name)}`);
    return new Map(found.map((each) => [each.expectation, each.violations]));
  } catch (error) {
    if (error instanceof SqlError) return new Map();
    throw error;
  }
}

async function expectations(id, data) {
  const found = await rows("SELECT name, condition, action, violations_id FROM mz_internal.mz_expectations WHERE object_id = $1 ORDER BY name", [id]);
  const counting = data.objects.get(found[0]?.violations_id);
  const of = await violations(counting);
  return found.map((each) => ({ ...each, violations: of.get(each.name) ?? null, counting }));
}

async function ask(object, data) {
  const id = object.type === "index" ? object.on_id : object.id;
  const [now, before, expected] = await Promise.all([
    rows("SELECT cause_id, sqlstate, error, rows, all_rows, skipped FROM mz_internal.mz_view_errors WHERE object_id = $1", [id]),
    object.type === "materialized-view" ? past(id) : null,
    expectations(id, data),
  ]);
  return { now: now.sort((a, b) => (b.rows ?? 0) - (a.rows ?? 0)), before, expected };
}

export function Errors({ object, data }) {
  const { data: found, error } = usePoll(() => ask(object, data), 2000, object.id);
  if (object.type === "source") return html`<${Undecoded} object=${object} />`;
  if (!found) return error ? html`<${Failure} error=${error} />` : html`<${Loading} />`;
  return html`<${Failure} error=${error} />
    <${Now} found=${found.now} object=${object} data=${data} />
    ${found.expected.length > 0 && html`<${Expectations} found=${found.expected} />`}
    ${found.before && html`<${Past} found=${found.before} />`}`;
}

function Now({ found, object, data }) {
  const columns = [
    { label: "Rows", kind: "number", value: (e) => (e.rows === null ? "?" : format.count(e.rows)) },
    { label: "Error", kind: "wrap", value: (e) => (e.error === null ? html`<span class="dim">you may not read the relation</span>` : html`<span class="bad-text">${e.error}</span>`) },
    { label: "Code", value: (e) => html`<code>${e.sqlstate}</code>` },
    { label: "In the data of", value: (e) => {
      const cause = data.objects.get(e.cause_id);
      return cause ? html`<a class="name" href=${objectLink(cause, { tab: "definition" })}><${Icon} name=${cause.type} size="14" />${cause.name}</a>` : e.cause_id;
    } },
  ];
  const skips = found.some((e) => e.skipped) && html`<p class="hint-line">The view's own rows with errors are left out, as it has <code>ON ERROR = SKIP</code>. When they are mended, they are in the view by themselves.</p>`;
  const fails = found.some((e) => !e.skipped) && html`<p class="hint-line">Reads fail while a row has an error. When the rows are changed or deleted, reads work again by themselves: there is no need to create the view anew.
        A definition without the error for such rows has, for example, <code>a / nullif(b, 0)</code>, or <code>CASE WHEN … THEN … END</code>.</p>`;
  const causes = [...new Set(found.map((e) => e.cause_id))].map((id) => data.objects.get(id)).filter(Boolean);
  const finds = causes.length > 0 && html`<p class="hint-line">The rows are found by ${causes.map((cause) => html`<code>SELECT * FROM FAILING_ROWS(${quoteNames(cause.schema_name, cause.name)})</code> `)}</p>`;
  return html`<${Card} title="Errors in the data" aside=${html`<code class="dim">mz_internal.mz_view_errors</code>`} flush>
    <${Table} columns=${columns} rows=${found} rowKey=${(e) => e.cause_id + e.sqlstate + e.error} label="Errors in the data" empty=${`No row of ${object.name}, or of what it is made of, has an error: it can be read.`} />${finds}${skips}${fails}
  </${Card}>`;
}

function Expectations({ found }) {
  const columns = [
    { label: "Name", value: (e) => html`<b>${e.name}</b>` },
    { label: "Condition", kind: "wrap", value: (e) => html`<code>${e.condition}</code>` },
    { label: "If violated", value: (e) => e.action },
    { label: "Violations", kind: "number", value: (e) => (e.violations === null ? "–" : html`<span class=${Number(e.violations) ? "bad-text" : ""}>${format.count(e.violations)}</span>`) },
  ];
  const counting = found[0].counting;
  return html`<${Card} title="Expectations" aside=${counting && html`<a href=${objectLink(counting)}>${counting.name}</a>`} flush>
    <${Table} columns=${columns} rows=${found} rowKey=${(e) => e.name} label="Expectations" /></${Card}>`;
}

function Past({ found }) {
  const columns = [
    { label: "From", value: (e) => html`${format.when(new Date(e.t))}<small class="dim"> ${format.duration(Math.max(0, Date.now() - e.t))} ago</small>` },
    { label: "Least error", kind: "wrap", value: (e) => (e.error === null ? html`<span class="dim">none: it could be read</span>` : html`<span class="bad-text">${e.error}</span>`) },
    { label: "Code", value: (e) => e.sqlstate && html`<code>${e.sqlstate}</code>` },
  ];
  return html`<${Card} title="History" aside=${html`<code class="dim">mz_internal.mz_materialized_view_errors</code>`} flush>
    <${Table} columns=${columns} rows=${found} rowKey=${(e) => e.t} label="History of errors" empty="It never had an error." /></${Card}>`;
}

/** What a source could not use: each relation of dead letters with its first rows. */
function Undecoded({ object }) {
  const { data: found, error } = usePoll(
    () => rows(
      `SELECT d.object_id AS id, d.kind, d.letters, n.name, n.schema_name, n.database_name
       FROM mz_internal.mz_dead_letters d JOIN mz_internal.mz_object_fully_qualified_names n ON n.id = d.object_id
       WHERE d.source_id = $1 ORDER BY d.kind, n.name`,
      [object.id],
    ),
    5000,
    object.id,
  );
  if (!found) return error ? html`<${Failure} error=${error} />` : html`<${Loading} />`;
  if (!found.length) return html`<${Card}><div class="none">This source has no relation for messages that it cannot use.</div></${Card}>`;
  return html`<${Failure} error=${error} />${found.map((letters) => html`<${Letters} key=${letters.id} of=${letters} />`)}`;
}

const LETTERS = { error: "Messages that could not be decoded", late: "Rows that came after their watermark" };

function Letters({ of }) {
  const name = quoteNames(of.database_name, of.schema_name, of.name);
  const { data: found, error } = usePoll(() => statement(`SELECT * FROM ${name} LIMIT ${MOST_UNDECODED}`), 5000, of.id);
  const query = link("sql", [], { q: `SELECT * FROM ${name}` });
  return html`<${Card} title=${LETTERS[of.kind] || of.kind} aside=${html`<span class="dim">${format.count(of.letters)} ${Number(of.letters) === 1 ? "row" : "rows"}</span> <a href=${query}>${of.name}</a>`} flush>
    <${Failure} error=${error} />
    ${found && (found.rows.length ? html`<${Grid} columns=${found.desc.columns} rows=${found.rows} version=${found.rows.length} label="Dead letters" />` : html`<div class="none">There are none.</div>`)}
  </${Card}>`;
}
