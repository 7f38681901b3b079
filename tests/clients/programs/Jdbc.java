// pgjdbc with HikariCP. Run as: java -cp JARS Jdbc.java URL
import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.io.StringReader;
import java.math.BigDecimal;
import java.net.URI;
import java.sql.*;
import java.time.OffsetDateTime;
import java.util.*;
import org.postgresql.PGConnection;
import org.postgresql.copy.CopyManager;

public class Jdbc {
    interface Work { void run(Connection c) throws Exception; }

    static HikariDataSource pool;

    static void step(String name, Work work) {
        try (Connection c = pool.getConnection()) {
            work.run(c);
            System.out.println("ok " + name);
        } catch (Throwable e) {
            String reason = String.valueOf(e).replaceAll("\\s+", " ");
            System.out.println("failed " + name + ": " + reason.substring(0, Math.min(300, reason.length())));
        }
    }

    static void equal(Object found, Object wanted) {
        if (!Objects.equals(found, wanted)) throw new RuntimeException(found + " instead of " + wanted);
    }

    static List<String> column(ResultSet rows, String name) throws SQLException {
        List<String> found = new ArrayList<>();
        while (rows.next()) found.add(rows.getString(name));
        return found;
    }

    public static void main(String[] args) throws Exception {
        URI at = URI.create(args[0]);
        HikariConfig config = new HikariConfig();
        config.setJdbcUrl("jdbc:postgresql://" + at.getHost() + ":" + at.getPort() + at.getPath());
        config.setUsername(at.getUserInfo());
        config.setMaximumPoolSize(3);
        pool = new HikariDataSource(config);

        step("crud", c -> {
            c.createStatement().execute("CREATE TABLE jd (id serial PRIMARY KEY, b bool, h smallint, i int, l bigint,"
                + " f float8, n numeric(10,2), t varchar(20), y bytea, d date, tz timestamptz, u uuid, a int[])");
            PreparedStatement s = c.prepareStatement("INSERT INTO jd (b, h, i, l, f, n, t, y, d, tz, u, a) VALUES"
                + " (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", Statement.RETURN_GENERATED_KEYS);
            OffsetDateTime when = OffsetDateTime.parse("2024-02-29T12:30:00Z");
            Object[] row = {true, (short) 7, -8, 1L << 40, 0.1, new BigDecimal("12.50"), "it's", new byte[] {0, -1},
                java.sql.Date.valueOf("2024-02-29"), when, new UUID(0, 5), c.createArrayOf("int4", new Integer[] {1, null})};
            for (int i = 0; i < row.length; i++) s.setObject(i + 1, row[i]);
            equal(s.executeUpdate(), 1);
            ResultSet keys = s.getGeneratedKeys();
            keys.next();
            equal(keys.getInt("id"), 1);
            PreparedStatement q = c.prepareStatement("SELECT * FROM jd WHERE i = ? AND t = ?");
            for (int time = 0; time < 8; time++) {  // after five the driver asks for binary
                q.setInt(1, -8);
                q.setString(2, "it's");
                ResultSet r = q.executeQuery();
                r.next();
                equal(r.getLong("l"), 1L << 40);
                equal(r.getDouble("f"), 0.1);
                equal(r.getBigDecimal("n"), new BigDecimal("12.50"));
                equal(r.getObject("tz", OffsetDateTime.class).toInstant(), when.toInstant());
                equal(r.getObject("u"), new UUID(0, 5));
                equal(Arrays.toString((Object[]) r.getArray("a").getArray()), "[1, null]");
                equal(r.getBytes("y").length, 2);
                equal(r.getDate("d").toString(), "2024-02-29");
            }
            ResultSetMetaData m = q.getMetaData();
            equal(m.getColumnCount() + " " + m.getPrecision(7) + " " + m.getScale(7) + " " + m.getColumnDisplaySize(8), "13 10 2 20");
            equal(m.isAutoIncrement(1) + " " + m.isNullable(1) + " " + m.getColumnTypeName(1), "true 0 serial");
        });
        step("transactions", c -> {
            c.setAutoCommit(false);
            c.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
            Statement s = c.createStatement();
            s.executeUpdate("INSERT INTO jd (id) VALUES (10000)");
            Savepoint point = c.setSavepoint("p");
            try {
                s.executeUpdate("INSERT INTO jd (id) VALUES (10000)");
                throw new RuntimeException("no error");
            } catch (SQLException e) {
                equal(e.getSQLState(), "23505");
            }
            c.rollback(point);
            c.commit();
            s.executeUpdate("DELETE FROM jd WHERE id = 10000");
            c.rollback();
            ResultSet r = s.executeQuery("SELECT count(*) FROM jd WHERE id = 10000");
            r.next();
            equal(r.getInt(1), 1);
        });
        step("batches", c -> {
            PreparedStatement s = c.prepareStatement("INSERT INTO jd (i, t) VALUES (?, ?)");
            for (int i = 0; i < 500; i++) {
                s.setInt(1, i);
                s.setString(2, "t" + i);
                s.addBatch();
            }
            equal(Arrays.stream(s.executeBatch()).sum(), 500);
        });
        step("fetches_by_portions", c -> {
            c.setAutoCommit(false);
            Statement s = c.createStatement();
            s.setFetchSize(50);
            ResultSet r = s.executeQuery("SELECT generate_series(1, 1000)");
            int sum = 0;
            while (r.next()) sum += r.getInt(1);
            equal(sum, 500500);
        });
        step("copies", c -> {
            CopyManager copy = c.unwrap(PGConnection.class).getCopyAPI();
            equal(copy.copyIn("COPY jd (i, t) FROM STDIN CSV", new StringReader("9001,a\n9002,\n")), 2L);
            java.io.StringWriter out = new java.io.StringWriter();
            copy.copyOut("COPY (SELECT i, t FROM jd WHERE i > 9000 ORDER BY i) TO STDOUT CSV", out);
            equal(out.toString(), "9001,a\n9002,\n");
        });
        step("cancels_and_time_outs", c -> {
            Statement s = c.createStatement();
            s.setQueryTimeout(1);
            try {
                s.execute("SELECT pg_sleep(30)");
                throw new RuntimeException("no error");
            } catch (SQLException e) {
                equal(e.getSQLState(), "57014");
            }
            s.execute("SELECT 1");
        });
        step("meta_data", c -> {
            c.createStatement().execute("CREATE TABLE jc (x int REFERENCES jd (id) ON DELETE CASCADE); "
                + "CREATE INDEX jd_by_t ON jd (t, i); CREATE VIEW jv AS SELECT t FROM jd; COMMENT ON TABLE jd IS 'said'");
            DatabaseMetaData m = c.getMetaData();
            equal(m.getDatabaseMajorVersion(), 15);
            equal(column(m.getTables(null, "public", "j_", new String[] {"TABLE"}), "TABLE_NAME"), List.of("jc", "jd"));
            equal(column(m.getTables(null, "public", "j_", new String[] {"VIEW"}), "TABLE_NAME"), List.of("jv"));
            equal(column(m.getColumns(null, "public", "jd", "%"), "COLUMN_NAME").size(), 13);
            equal(column(m.getPrimaryKeys(null, "public", "jd"), "COLUMN_NAME"), List.of("id"));
            equal(column(m.getImportedKeys(null, "public", "jc"), "FKCOLUMN_NAME"), List.of("x"));
            equal(column(m.getExportedKeys(null, "public", "jd"), "FKTABLE_NAME"), List.of("jc"));
            equal(column(m.getIndexInfo(null, "public", "jd", false, true), "INDEX_NAME"),
                List.of("jd_pkey", "jd_by_t", "jd_by_t"));
            equal(column(m.getSchemas(), "TABLE_SCHEM").contains("public"), true);
            equal(column(m.getTypeInfo(), "TYPE_NAME").containsAll(List.of("int4", "text", "jsonb")), true);
            column(m.getFunctions(null, null, "lower"), "FUNCTION_NAME");
            column(m.getBestRowIdentifier(null, "public", "jd", 1, true), "COLUMN_NAME");
            column(m.getTablePrivileges(null, "public", "jd"), "GRANTEE");
            column(m.getColumnPrivileges(null, "public", "jd", "t"), "GRANTEE");
            equal(m.getSQLKeywords().contains("ilike"), true);
        });
        pool.close();
        System.exit(0);
    }
}
