// postgres.js: tagged templates, transactions, cursors, COPY, cancel, LISTEN. Run as: node postgres_js.js URL
const postgres = require("postgres");
const { pipeline } = require("stream/promises");
const { Readable } = require("stream");
const { equal, fails, run } = require("./steps.js");

const sql = postgres(process.argv[2], { max: 3, onnotice: () => {} });

const steps = {
  crud: async () => {
    await sql`CREATE TABLE pj (id serial PRIMARY KEY, b bool, i int, l bigint, f float8, n numeric(10,2),
      t text, y bytea, tz timestamptz, j jsonb, a int[])`;
    const row = { b: true, i: -8, l: "1099511627776", f: 0.1, n: "12.50", t: "é", y: Buffer.from([0, 255]),
      tz: new Date("2024-02-29T12:30:00Z"), j: { k: [1] }, a: [1, 2] };
    const [made] = await sql`INSERT INTO pj ${sql(row)} RETURNING *`;
    delete made.id;
    equal({ ...made, y: Buffer.from(made.y) }, row);
    const many = [...Array(50).keys()].map((i) => ({ i, t: `t${i}` }));
    equal((await sql`INSERT INTO pj ${sql(many, "i", "t")}`).count, 50);
    equal((await sql`UPDATE pj SET ${sql({ t: "n" })} WHERE i IN ${sql([1, 2])}`).count, 2);
    equal([...(await sql`SELECT i FROM pj WHERE t = ${"n"} ORDER BY ${sql("i")}`)], [{ i: 1 }, { i: 2 }]);
  },
  transactions: async () => {
    await sql`CREATE TABLE pt (i int PRIMARY KEY)`;
    await sql.begin(async (t) => {
      await t`INSERT INTO pt VALUES (1)`;
      await fails("23505", () => t.savepoint((s) => s`INSERT INTO pt VALUES (1)`));
      await t`INSERT INTO pt VALUES (2)`;
    });
    await fails("23505", () => sql.begin((t) => [t`INSERT INTO pt VALUES (3)`, t`INSERT INTO pt VALUES (1)`]));
    equal([...(await sql`SELECT i FROM pt ORDER BY i`)], [{ i: 1 }, { i: 2 }]);
  },
  pipelines: async () => {
    const found = await Promise.all([...Array(60).keys()].map((i) => sql`SELECT ${i}::int AS i`));
    equal(found.map((rows) => rows[0].i), [...Array(60).keys()]);
  },
  cursors: async () => {
    let sum = 0;
    await sql`SELECT generate_series(1, 95) AS n`.cursor(10, (rows) => rows.forEach((r) => (sum += r.n)));
    for await (const [row] of sql`SELECT generate_series(1, 5) AS n`.cursor()) sum += row.n;
    equal(sum, 4560 + 15);
  },
  copies: async () => {
    await sql`CREATE TABLE pc (i int, t text)`;
    await pipeline(Readable.from(["1\ta\n2\t\\N\n"]), await sql`COPY pc FROM STDIN`.writable());
    let text = "";
    for await (const part of await sql`COPY (SELECT * FROM pc ORDER BY i) TO STDOUT`.readable()) text += part;
    equal(text, "1\ta\n2\t\\N\n");
  },
  describes_and_cancels: async () => {
    const described = await sql`SELECT i FROM pt WHERE i = ${1}`.describe();
    equal([described.types, described.columns.map((c) => c.type)], [[23], [23]]);
    const slow = sql`SELECT pg_sleep(30)`.execute();
    setTimeout(() => slow.cancel(), 300);
    await fails("57014", () => slow);
    await sql`SELECT 1`;
  },
  simple_and_several: async () => {
    const results = await sql`SELECT 1 AS a; SELECT 2 AS b`.simple();
    equal(results.map((r) => r[0]), [{ a: 1 }, { b: 2 }]);
  },
  types_of_users: async () => {
    await sql`CREATE TYPE moodpj AS ENUM ('low', 'high')`;
    equal((await sql`SELECT ${"low"}::moodpj AS m, '{low,high}'::moodpj[] AS l`)[0].m, "low");
  },
  listens: async () => {
    let hear;
    const heard = new Promise((resolve) => (hear = resolve));
    await sql.listen("news", hear);
    await sql.notify("news", "hi");
    equal(await heard, "hi");
  },
};

run(steps);
