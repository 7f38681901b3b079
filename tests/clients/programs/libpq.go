// Go's lib/pq. Run as: go run libpq.go URL
package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/lib/pq"
)

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
	if e, is := err.(*pq.Error); is {
		return string(e.Code)
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

func main() {
	db, err := sql.Open("postgres", os.Args[1]+"?sslmode=disable")
	must(err)
	db.SetMaxOpenConns(4)
	exec := func(text string, args ...interface{}) sql.Result {
		result, err := db.Exec(text, args...)
		must(err)
		return result
	}
	step("crud", func() {
		exec("CREATE TABLE gq (id serial PRIMARY KEY, i int, n numeric(8,2), t text, y bytea, tz timestamptz, a int[])")
		var id, i int
		must(db.QueryRow("INSERT INTO gq (i, n, t, y, tz, a) VALUES ($1, $2, $3, $4, $5, $6) RETURNING id",
			-8, "12.50", "it's", []byte{0, 255}, time.Unix(1709210000, 0), pq.Array([]int{1, 2})).Scan(&id))
		var n, t string
		var y []byte
		var tz time.Time
		var a []int64
		must(db.QueryRow("SELECT i, n, t, y, tz, a FROM gq WHERE id = $1", id).Scan(&i, &n, &t, &y, &tz, pq.Array(&a)))
		equal([]interface{}{i, n, t, y, tz.Unix(), a}, []interface{}{-8, "12.50", "it's", []byte{0, 255}, 1709210000, []int{1, 2}})
		count, _ := exec("UPDATE gq SET t = $1 WHERE id = ANY($2)", "new", pq.Array([]int{1, 2})).RowsAffected()
		equal(count, 1)
	})
	step("transactions", func() {
		tx, err := db.Begin()
		must(err)
		_, err = tx.Exec("INSERT INTO gq (id) VALUES (50)")
		must(err)
		_, err = tx.Exec("INSERT INTO gq (id) VALUES (50)")
		equal(state(err), "23505")
		_, err = tx.Exec("SELECT 1")
		equal(state(err), "25P02")
		must(tx.Rollback())
		tx, err = db.BeginTx(context.Background(), &sql.TxOptions{Isolation: sql.LevelSerializable, ReadOnly: true})
		must(err)
		_, err = tx.Exec("INSERT INTO gq (id) VALUES (51)")
		equal(state(err), "25006")
		must(tx.Rollback())
	})
	step("copies", func() {
		tx, err := db.Begin()
		must(err)
		s, err := tx.Prepare(pq.CopyIn("gq", "i", "t"))
		must(err)
		for i := 0; i < 200; i++ {
			_, err = s.Exec(i, "copied")
			must(err)
		}
		_, err = s.Exec()
		must(err)
		must(s.Close())
		must(tx.Commit())
		var n int
		must(db.QueryRow("SELECT count(*) FROM gq WHERE t = 'copied'").Scan(&n))
		equal(n, 200)
	})
	step("cancels", func() {
		ctx, stop := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer stop()
		_, err := db.ExecContext(ctx, "SELECT pg_sleep(30)")
		equal(state(err), "57014")
		exec("SELECT 1")
	})
	step("column_types", func() {
		rows, err := db.Query("SELECT i, n, t FROM gq")
		must(err)
		defer rows.Close()
		types, err := rows.ColumnTypes()
		must(err)
		p, s, _ := types[1].DecimalSize()
		equal([]interface{}{types[0].DatabaseTypeName(), p, s}, []interface{}{"INT4", 8, 2})
	})
}
