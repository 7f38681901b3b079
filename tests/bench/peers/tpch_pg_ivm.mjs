// Views of TPC-H in pg_ivm on PGlite: `node tpch_pg_ivm.mjs MODULES COPY|INSERT SCHEMA VIEW FOLDER ROWS`.
//
// MODULES is a folder in which @electric-sql/pglite and @electric-sql/pglite-pg_ivm are installed, SCHEMA
// the DDL of the tables as JSON. Appends each batch (`run.py`) in one transaction and reads the view.
// HAVING and IN are not maintained by pg_ivm, so those of Q18 are left to the read.

import { readFileSync, readdirSync, existsSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

const [modules, way, schemaText, view, folder] = process.argv.slice(2)
const from = createRequire(join(modules, 'package.json'))
const load = async name => import(pathToFileURL(from.resolve(name)))
const { PGlite } = await load('@electric-sql/pglite')
const { pg_ivm } = await load('@electric-sql/pglite-pg_ivm')

const REVENUE = 'sum(l_extendedprice * (1 - l_discount))'
const MAINTAINED = {
  q1: `SELECT l_returnflag, l_linestatus, sum(l_quantity) AS sum_qty, sum(l_extendedprice) AS sum_base_price,
      ${REVENUE} AS sum_disc_price, sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge,
      avg(l_quantity) AS avg_qty, avg(l_extendedprice) AS avg_price, avg(l_discount) AS avg_disc,
      count(*) AS count_order
    FROM lineitem WHERE l_shipdate <= DATE '1998-09-02' GROUP BY l_returnflag, l_linestatus`,
  q3: `SELECT l_orderkey, ${REVENUE} AS revenue, o_orderdate, o_shippriority
    FROM customer, orders, lineitem
    WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey
      AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15'
    GROUP BY l_orderkey, o_orderdate, o_shippriority`,
  q5: `SELECT n_name, ${REVENUE} AS revenue
    FROM customer, orders, lineitem, supplier, nation, region
    WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey
      AND c_nationkey = s_nationkey AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey
      AND r_name = 'ASIA' AND o_orderdate >= DATE '1994-01-01' AND o_orderdate < DATE '1995-01-01'
    GROUP BY n_name`,
  q18: `SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity) AS quantity
    FROM customer, orders, lineitem WHERE c_custkey = o_custkey AND o_orderkey = l_orderkey
    GROUP BY c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice`,
}
const READ = {
  q1: `SELECT l_returnflag, l_linestatus, sum_qty, sum_base_price, sum_disc_price, sum_charge, avg_qty,
      avg_price, avg_disc, count_order FROM kept`,
  q3: 'SELECT l_orderkey, revenue, o_orderdate::text, o_shippriority FROM kept',
  q5: 'SELECT n_name, revenue FROM kept',
  q18: `SELECT c_name, c_custkey, o_orderkey, o_orderdate::text, o_totalprice, quantity FROM kept
    WHERE quantity > 300`,
}
const ROWS_OF_INSERT = 1000
const NUMBER = /^-?[0-9.]+$/

const schema = JSON.parse(schemaText)
const pg = new PGlite({ extensions: { pg_ivm } })
await pg.exec('CREATE EXTENSION pg_ivm')
const copy = async (db, table, path) =>
  db.query(`COPY ${table} FROM '/dev/blob' (FORMAT csv, HEADER)`, [], { blob: new Blob([readFileSync(path)]) })
for (const [name, ddl] of Object.entries(schema)) {
  await pg.exec(ddl)
  const fixed = join(folder, name, 'fixed.csv')
  if (existsSync(fixed)) await copy(pg, name, fixed)
}
if (schema.lineitem && schema.orders) await pg.exec('CREATE INDEX ON lineitem (l_orderkey)')
await pg.exec('ANALYZE')
await pg.query('SELECT pgivm.create_immv($1, $2)', ['kept', MAINTAINED[view]])

const filesOf = name => readdirSync(join(folder, name)).filter(f => /^\d/.test(f)).sort()
const streamed = Object.keys(schema).filter(name => filesOf(name).length)
const statements = (name, path) => {
  const lines = readFileSync(path, 'utf8').trimEnd().split('\n').slice(1)
  const rows = lines.map(line => `(${line.split(',').map(v => NUMBER.test(v) ? v : `'${v}'`).join(', ')})`)
  const found = []
  for (let i = 0; i < rows.length; i += ROWS_OF_INSERT)
    found.push(`INSERT INTO ${name} VALUES ${rows.slice(i, i + ROWS_OF_INSERT).join(', ')}`)
  return found
}

const seconds = []
let used = 0
for (const file of filesOf(streamed[0])) {
  const texts = way === 'COPY' ? [] : streamed.flatMap(name => statements(name, join(folder, name, file)))
  const cpu = process.cpuUsage(), began = performance.now()
  await pg.transaction(async tx => {
    if (way === 'COPY') for (const name of streamed) await copy(tx, name, join(folder, name, file))
    else for (const text of texts) await tx.exec(text)
  })
  await pg.query(`SELECT count(*) FROM (${READ[view]}) AS read`)
  seconds.push((performance.now() - began) / 1e3)
  const now = process.cpuUsage(cpu)
  used += (now.user + now.system) / 1e6
}
const answer = (await pg.query(READ[view], [], { rowMode: 'array' })).rows
const wall = seconds.reduce((a, b) => a + b, 0)
const batch = [...seconds].sort((a, b) => a - b)[seconds.length >> 1]
console.log(JSON.stringify({ wall, cpu: used, batch, answer }))
