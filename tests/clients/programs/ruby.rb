# Ruby's pg. Run as: ruby ruby.rb URL
require "pg"

URL = ARGV[0]

def equal(found, wanted)
  raise "#{found.inspect} instead of #{wanted.inspect}" unless found == wanted
end

def step(name)
  yield
  puts "ok #{name}"
rescue StandardError => e
  puts "failed #{name}: #{e.message.gsub(/\s+/, ' ')[0, 300]}"
end

c = PG.connect(URL)

step "crud" do
  c.exec("CREATE TABLE rb (id serial PRIMARY KEY, i int, n numeric(8,2), t text, y bytea, d date)")
  c.type_map_for_results = PG::BasicTypeMapForResults.new(c)
  params = [-8, "12.50", "it's", { value: "\0\xff".b, format: 1 }, "2024-02-29"]
  made = c.exec_params("INSERT INTO rb (i, n, t, y, d) VALUES ($1, $2, $3, $4, $5) RETURNING *", params)
  equal(made[0].values_at("i", "t", "y", "d"), [-8, "it's", "\0\xff".b, Date.new(2024, 2, 29)])
  equal(c.exec_params("UPDATE rb SET t = $1", ["new"]).cmd_tuples, 1)
  equal(c.exec_params("SELECT i FROM rb", [], 1).getvalue(0, 0), -8)
end
step "transactions" do
  begin
    c.transaction do |t|
      t.exec("INSERT INTO rb (id) VALUES (50)")
      t.exec("INSERT INTO rb (id) VALUES (50)")
    end
  rescue PG::UniqueViolation => e
    equal(e.result.error_field(PG::PG_DIAG_CONSTRAINT_NAME), "rb_pkey")
  end
  equal(c.exec("SELECT count(*) FROM rb").getvalue(0, 0), 1)
end
step "prepared_statements" do
  c.prepare("plus", "SELECT $1::int + 1")
  equal(3.times.map { |i| c.exec_prepared("plus", [i]).getvalue(0, 0) }, [1, 2, 3])
  equal(c.describe_prepared("plus").paramtype(0), 23)
end
step "copies" do
  c.copy_data("COPY rb (i, t) FROM STDIN CSV") { c.put_copy_data("7,x\n8,y\n") }
  lines = []
  c.copy_data("COPY (SELECT i FROM rb WHERE i > 0 ORDER BY i) TO STDOUT") { while (l = c.get_copy_data) do lines << l end }
  equal(lines, ["7\n", "8\n"])
end
step "single_rows_and_pipelines" do
  c.send_query("SELECT generate_series(1, 100) AS n")
  c.set_single_row_mode
  equal(c.get_result.stream_each.sum { |row| row["n"] }, 5050)
  c.get_result
  c.pipeline_sync rescue nil
end
step "cancels" do
  c.send_query("SELECT pg_sleep(30)")
  equal(c.cancel, nil)
  begin
    c.get_last_result
  rescue PG::QueryCanceled
    equal(c.exec("SELECT 1").getvalue(0, 0), 1)
  end
end
step "types_of_users" do
  c.exec("CREATE TYPE moodrb AS ENUM ('low')")
  PG::BasicTypeRegistry.new.register_default_types
  registry = PG::BasicTypeMapForQueries.new(c)
  equal(c.exec_params("SELECT $1::int[] AS a", [[1, 2]], 0, registry)[0]["a"], [1, 2])
end
