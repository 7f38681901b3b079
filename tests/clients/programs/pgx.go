// Go's pgx 4, with its pool and its driver of database/sql. Run as: go run pgx.go URL
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgconn"
	"github.com/jackc/pgtype"
	"github.com/jackc/pgx/v4"
	"github.com/jackc/pgx/v4/pgxpool"
	_ "github.com/jackc/pgx/v4/stdlib"
)

var all = context.Background()

func equal(found, wanted interface{}) {
	if fmt.Sprint(found) != fmt.Sprint(wanted) {
		panic(fmt.Sprintf("%v instead of %v", found, wanted))
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func state(err error) string {
	var found *pgconn.PgError
	if errors.As(err, &found) {
		return found.Code
	}
	return fmt.Sprint(err)
}

func step(name string, work func()) {
	defer func() {
		if failure := recover(); failure != nil {
			reason := strings.Join(strings.Fields(fmt.Sprint(failure)), " ")
			fmt.Printf("failed %s: %s\n", name, reason)
		} else {
			fmt.Printf("ok %s\n", name)
		}
	}()
	work()
}

func connect() *pgx.Conn {
	conn, err := pgx.Connect(all, os.Args[1])
	must(err)
	return conn
}

func main() {
	conn := connect()
	defer conn.Close(all)
	exec := func(text string, args ...interface{}) int64 {
		tag, err := conn.Exec(all, text, args...)
		must(err)
		return tag.RowsAffected()
	}
	step("values_in_binary", func() {
		exec(`CREATE TABLE gx (id serial PRIMARY KEY, b bool, h smallint, i int, l bigint, r real, f float8,
			n numeric(10,2), t text, y bytea, d date, ts timestamp, tz timestamptz, iv interval, u uuid, j jsonb,
			a int[], s text[], ip inet)`)
		day := time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC)
		moment := time.Date(2024, 2, 29, 12, 30, 1, 5000, time.UTC)
		var n pgtype.Numeric
		must(n.Set("12.50"))
		var id int
		must(conn.QueryRow(all, `INSERT INTO gx (b, h, i, l, r, f, n, t, y, d, ts, tz, iv, u, j, a, s, ip)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18) RETURNING id`,
			true, int16(7), -8, int64(1)<<40, float32(1.5), 0.1, &n, "it's", []byte{0, 255}, day, moment, moment,
			26*time.Hour, "00000000-0000-0000-0000-000000000005", map[string]int{"k": 1}, []int32{1, 2},
			[]string{"x y", "q\""}, &net.IPNet{IP: net.IPv4(10, 0, 0, 1), Mask: net.CIDRMask(8, 32)}).Scan(&id))
		var b bool
		var h int16
		var i int32
		var l int64
		var r float32
		var f, back float64
		var t string
		var y []byte
		var d, ts, tz time.Time
		var iv pgtype.Interval
		var u pgtype.UUID
		var j map[string]int
		var a []int32
		var s []string
		var ip net.IPNet
		must(conn.QueryRow(all, "SELECT b, h, i, l, r, f, n, t, y, d, ts, tz, iv, u, j, a, s, ip FROM gx WHERE id = $1",
			id).Scan(&b, &h, &i, &l, &r, &f, &n, &t, &y, &d, &ts, &tz, &iv, &u, &j, &a, &s, &ip))
		must(n.AssignTo(&back))
		equal([]interface{}{b, h, i, l, r, f, back, t, y}, []interface{}{true, 7, -8, 1 << 40, 1.5, 0.1, 12.5, "it's", []byte{0, 255}})
		equal([]interface{}{d.Equal(day), ts.Equal(moment), tz.Equal(moment)}, []interface{}{true, true, true})
		equal([]interface{}{iv.Days, iv.Microseconds, u.Bytes[15]}, []interface{}{0, 26 * 3600 * 1000000, 5})
		equal([]interface{}{j, a, s, ip.String()}, []interface{}{map[string]int{"k": 1}, []int{1, 2}, []string{"x y", "q\""}, "10.0.0.1/8"})
	})
	step("nulls_and_affected_rows", func() {
		equal(exec("INSERT INTO gx (i, t) SELECT g, NULL FROM generate_series(100, 109) AS g"), 10)
		var t *string
		must(conn.QueryRow(all, "SELECT t FROM gx WHERE i = $1", 100).Scan(&t))
		equal(t == nil, true)
		equal(exec("UPDATE gx SET t = $1 WHERE i = ANY($2)", "new", []int32{100, 101}), 2)
		equal(exec("DELETE FROM gx WHERE i >= $1", 105), 5)
		equal(conn.QueryRow(all, "SELECT id FROM gx WHERE false").Scan(new(int)), pgx.ErrNoRows)
	})
	step("transactions", func() {
		tx, err := conn.Begin(all)
		must(err)
		inner, err := tx.Begin(all) // a savepoint
		must(err)
		_, err = inner.Exec(all, "INSERT INTO gx (id) VALUES (50000), (50000)")
		equal(state(err), "23505")
		_, err = inner.Exec(all, "SELECT 1")
		equal(state(err), "25P02")
		must(inner.Rollback(all))
		_, err = tx.Exec(all, "INSERT INTO gx (id, i) VALUES (50001, 501)")
		must(err)
		must(tx.Commit(all))
		tx, err = conn.BeginTx(all, pgx.TxOptions{IsoLevel: pgx.Serializable, AccessMode: pgx.ReadOnly})
		must(err)
		_, err = tx.Exec(all, "INSERT INTO gx (id) VALUES (50002)")
		equal(state(err), "25006")
		must(tx.Rollback(all))
	})
	step("batches", func() {
		batch := &pgx.Batch{}
		for i := 0; i < 50; i++ {
			batch.Queue("INSERT INTO gx (i, t) VALUES ($1, 'batched')", 1000+i)
		}
		batch.Queue("SELECT count(*) FROM gx WHERE t = $1", "batched")
		results := conn.SendBatch(all, batch)
		for i := 0; i < 50; i++ {
			tag, err := results.Exec()
			must(err)
			equal(tag.RowsAffected(), 1)
		}
		var n int
		must(results.QueryRow().Scan(&n))
		equal(n, 50)
		must(results.Close())
		batch = &pgx.Batch{}
		batch.Queue("INSERT INTO gx (i) VALUES (2000)")
		batch.Queue("SELECT 1 / $1::int", 0)
		batch.Queue("INSERT INTO gx (i) VALUES (2001)")
		equal(state(conn.SendBatch(all, batch).Close()), "22012")
		must(conn.QueryRow(all, "SELECT count(*) FROM gx WHERE i IN (2000, 2001)").Scan(&n))
		equal(n, 0)
	})
	step("copies_in_binary", func() {
		rows := make([][]interface{}, 500)
		for i := range rows {
			rows[i] = []interface{}{int32(i), "copied", []int32{int32(i)}}
		}
		n, err := conn.CopyFrom(all, pgx.Identifier{"gx"}, []string{"i", "t", "a"}, pgx.CopyFromRows(rows))
		must(err)
		equal(n, 500)
		var sum int
		must(conn.QueryRow(all, "SELECT sum(a[1]) FROM gx WHERE t = 'copied'").Scan(&sum))
		equal(sum, 124750)
	})
	step("copies_text", func() {
		var out strings.Builder
		_, err := conn.PgConn().CopyTo(all, &out, "COPY (SELECT g, 'x' FROM generate_series(1, 3) AS g) TO STDOUT")
		must(err)
		equal(out.String(), "1\tx\n2\tx\n3\tx\n")
		tag, err := conn.PgConn().CopyFrom(all, strings.NewReader("7,seven\n8,eight\n"), "COPY gx (i, t) FROM STDIN (FORMAT csv)")
		must(err)
		equal(tag.RowsAffected(), 2)
	})
	step("prepares", func() {
		described, err := conn.Prepare(all, "by_i", "SELECT id, t, n FROM gx WHERE i = $1 AND t = $2")
		must(err)
		equal(described.ParamOIDs, []uint32{23, 25})
		equal(len(described.Fields), 3)
		for i := 0; i < 10; i++ {
			rows, err := conn.Query(all, "by_i", 7, "seven")
			must(err)
			equal(rows.Next(), true)
			rows.Close()
			must(rows.Err())
		}
		must(conn.Deallocate(all, "by_i"))
	})
	step("plans_outlive_ddl", func() {
		var v string
		exec("CREATE TABLE changing (v int)")
		exec("INSERT INTO changing VALUES (1)")
		other := connect()
		defer other.Close(all)
		read := func() error { return other.QueryRow(all, "SELECT v::text FROM changing").Scan(&v) }
		must(read())
		exec("ALTER TABLE changing ADD COLUMN w int")
		must(read())
		equal(v, "1")
	})
	step("simple_protocol", func() {
		config, err := pgx.ParseConfig(os.Args[1])
		must(err)
		config.PreferSimpleProtocol = true
		simple, err := pgx.ConnectConfig(all, config)
		must(err)
		defer simple.Close(all)
		var t string
		var a []int32
		must(simple.QueryRow(all, "SELECT $1::text, $2::int[]", "it's \\", []int32{1, 2}).Scan(&t, &a))
		equal([]interface{}{t, a}, []interface{}{"it's \\", []int{1, 2}})
	})
	step("cancels", func() {
		other := connect()
		ctx, stop := context.WithTimeout(all, 300*time.Millisecond)
		defer stop()
		_, err := other.Exec(ctx, "SELECT pg_sleep(30)")
		equal(errors.Is(err, context.DeadlineExceeded) || pgconn.Timeout(err), true)
		busy := connect()
		defer busy.Close(all)
		time.AfterFunc(300*time.Millisecond, func() { busy.PgConn().CancelRequest(all) })
		_, err = busy.Exec(all, "SELECT pg_sleep(30)")
		equal(state(err), "57014")
		must(busy.Ping(all))
	})
	step("listens", func() {
		listener := connect()
		defer listener.Close(all)
		_, err := listener.Exec(all, "LISTEN news")
		must(err)
		exec("SELECT pg_notify('news', 'hello')")
		ctx, stop := context.WithTimeout(all, 60*time.Second)
		defer stop()
		told, err := listener.WaitForNotification(ctx)
		must(err)
		equal([]string{told.Channel, told.Payload}, []string{"news", "hello"})
	})
	step("pool", func() {
		config, err := pgxpool.ParseConfig(os.Args[1])
		must(err)
		config.MaxConns = 4
		pool, err := pgxpool.ConnectConfig(all, config)
		must(err)
		defer pool.Close()
		var work sync.WaitGroup
		failures := make(chan error, 64)
		for i := 0; i < 16; i++ {
			work.Add(1)
			go func(i int) {
				defer work.Done()
				for k := 0; k < 10; k++ {
					var n int
					if err := pool.QueryRow(all, "SELECT $1::int + $2::int", i, k).Scan(&n); err != nil || n != i+k {
						failures <- fmt.Errorf("%v %d", err, n)
						return
					}
				}
			}(i)
		}
		work.Wait()
		close(failures)
		must(<-failures)
		equal(pool.Stat().TotalConns() <= 4, true)
	})
	step("database_sql", func() {
		db, err := sql.Open("pgx", os.Args[1])
		must(err)
		defer db.Close()
		tx, err := db.BeginTx(all, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		must(err)
		result, err := tx.Exec("UPDATE gx SET t = 'std' WHERE t = $1", "copied")
		must(err)
		n, err := result.RowsAffected()
		must(err)
		equal(n, 500)
		must(tx.Commit())
		rows, err := db.Query("SELECT i, n, t FROM gx LIMIT 1")
		must(err)
		defer rows.Close()
		types, err := rows.ColumnTypes()
		must(err)
		p, s, _ := types[1].DecimalSize()
		equal([]interface{}{types[0].DatabaseTypeName(), p, s}, []interface{}{"INT4", 10, 2})
	})
	step("types_of_the_user", func() {
		exec("CREATE TYPE mood AS ENUM ('sad', 'ok')")
		exec("CREATE TABLE felt (m mood)")
		exec("INSERT INTO felt VALUES ($1)", "ok")
		var m string
		must(conn.QueryRow(all, "SELECT m FROM felt WHERE m = $1", "ok").Scan(&m))
		equal(m, "ok")
	})
}
