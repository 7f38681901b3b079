// node-postgres: client, pool, cursor, query stream and COPY streams. Run as: node node_pg.js URL
const { Client, Pool } = require("pg");
const Cursor = require("pg-cursor");
const QueryStream = require("pg-query-stream");
const { from, to } = require("pg-copy-streams");
const { pipeline } = require("stream/promises");
const assert = require("assert");
const { Readable, Writable } = require("stream");
const { equal, fails, run } = require("./steps.js");

const connectionString = process.argv[2];
const connected = async (work) => {
  const client = new Client({ connectionString });
  await client.connect();
  try {
    await work(client);
  } finally {
    await client.end();
  }
};

const steps = {
  crud: () =>
    connected(async (c) => {
      await c.query(`CREATE TABLE np (id serial PRIMARY KEY, b bool, i int, l bigint, f float8,
        n numeric(10,2), t text, y bytea, tz timestamptz, j jsonb, a int[], u uuid)`);
      const at = new Date("2024-02-29T12:30:00Z");
      const row = [true, -8, "1099511627776", 0.1, "12.50", "é '", Buffer.from([0, 255]), at,
        { k: [1] }, [1, null, 3], "00000000-0000-0000-0000-000000000005"];
      const marks = row.map((_, i) => `$${i + 1}`).join(", ");
      const made = await c.query(`INSERT INTO np VALUES (DEFAULT, ${marks}) RETURNING *`, row);
      equal(Object.values(made.rows[0]).slice(1), row);
      equal(made.fields.map((f) => f.dataTypeID).slice(0, 6), [23, 16, 23, 20, 701, 1700]);
      const changed = await c.query("UPDATE np SET t = $1, i = i + $2 WHERE id = ANY($3)", ["n", 1, [1, 2]]);
      equal([changed.command, changed.rowCount], ["UPDATE", 1]);
      const found = await c.query({ text: "SELECT t, i FROM np WHERE l = $1", values: [2 ** 40], rowMode: "array" });
      equal(found.rows, [["n", -7]]);
    }),
  transactions: () =>
    connected(async (c) => {
      await c.query("CREATE TABLE nt (i int PRIMARY KEY)");
      await c.query("BEGIN");
      await c.query("INSERT INTO nt VALUES (1)");
      await c.query("SAVEPOINT s");
      await fails("23505", () => c.query("INSERT INTO nt VALUES ($1)", [1]));
      await fails("25P02", () => c.query("SELECT 1"));
      await c.query("ROLLBACK TO SAVEPOINT s");
      await c.query("COMMIT");
      equal((await c.query("SELECT * FROM nt")).rows, [{ i: 1 }]);
      const several = await c.query("SELECT 1 AS a; SELECT 2 AS b");
      equal(several.map((r) => r.rows[0]), [{ a: 1 }, { b: 2 }]);
    }),
  prepared_statements: () =>
    connected(async (c) => {
      for (let i = 0; i < 5; i++) {
        const r = await c.query({ name: "plus", text: "SELECT $1::int + 1 AS n", values: [i] });
        equal(r.rows[0].n, i + 1);
      }
      await c.query({ name: "all", text: "SELECT * FROM nt" });
      await fails("22P02", () => c.query({ name: "bad", text: "SELECT $1::int", values: ["x"] }));
    }),
  cursors_and_streams: () =>
    connected(async (c) => {
      const cursor = c.query(new Cursor("SELECT generate_series(1, $1) AS n", [25]));
      equal((await cursor.read(10)).length, 10);
      equal((await cursor.read(100)).length, 15);
      await cursor.close();
      let sum = 0;
      for await (const row of c.query(new QueryStream("SELECT generate_series(1, 500) AS n", [], { batchSize: 50 })))
        sum += row.n;
      equal(sum, 125250);
    }),
  copies: () =>
    connected(async (c) => {
      await c.query("CREATE TABLE nc (i int, t text)");
      await pipeline(Readable.from(["1\ta\n", "2\t\\N\n"]), c.query(from("COPY nc FROM STDIN")));
      const parts = [];
      const sink = new Writable({ write: (part, _, done) => (parts.push(part), done()) });
      await pipeline(c.query(to("COPY nc TO STDOUT WITH (FORMAT csv)")), sink);
      equal(Buffer.concat(parts).toString().trim().split("\n").sort(), ["1,a", "2,"]);
      await fails("22P02", () => pipeline(Readable.from(["x\ty\n"]), c.query(from("COPY nc FROM STDIN"))));
      equal((await c.query("SELECT count(*)::int AS n FROM nc")).rows, [{ n: 2 }]);
    }),
  pool_time_outs_and_errors: async () => {
    const pool = new Pool({ connectionString, max: 4, statement_timeout: 300, application_name: "np" });
    const found = await Promise.all([...Array(30).keys()].map((i) => pool.query("SELECT $1::int AS i", [i])));
    equal(found.map((r) => r.rows[0].i), [...Array(30).keys()]);
    await fails("57014", () => pool.query("SELECT pg_sleep(30)"));
    const client = await pool.connect();
    const pid = (await client.query("SELECT pg_backend_pid() AS pid")).rows[0].pid;
    client.on("error", () => {});
    await pool.query("SELECT pg_terminate_backend($1)", [pid]);
    await assert.rejects(client.query("SELECT pg_sleep(1)"));
    client.release(true);
    equal((await pool.query("SHOW application_name")).rows, [{ application_name: "np" }]);
    await pool.end();
  },
  listens: () =>
    connected((c) =>
      connected(async (d) => {
        const heard = new Promise((resolve) => c.on("notification", resolve));
        await c.query("LISTEN news");
        await d.query("SELECT pg_notify($1, $2)", ["news", "hi"]);
        equal((await heard).payload, "hi");
      }),
    ),
};

run(steps);
