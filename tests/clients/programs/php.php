<?php
// PHP's pdo_pgsql and pgsql. Run as: php php.php URL
$at = parse_url($argv[1]);
$name = ltrim($at["path"], "/");
$db = new PDO("pgsql:host={$at['host']};port={$at['port']};dbname=$name", $at["user"], null,
    [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);

function equal($found, $wanted) {
    if ($found !== $wanted) {
        throw new Exception(json_encode($found) . " instead of " . json_encode($wanted));
    }
}
function step($name, $work) {
    try {
        $work();
        echo "ok $name\n";
    } catch (Throwable $error) {
        echo "failed $name: " . substr(preg_replace('/\s+/', ' ', $error->getMessage()), 0, 300) . "\n";
    }
}

step("crud", function () use ($db) {
    $db->exec("CREATE TABLE ph (id serial PRIMARY KEY, b bool, i int, n numeric(8,2), t text, y bytea)");
    $insert = $db->prepare("INSERT INTO ph (b, i, n, t, y) VALUES (:b, :i, :n, :t, :y) RETURNING id");
    $insert->bindValue("b", true, PDO::PARAM_BOOL);
    $insert->bindValue("i", -8, PDO::PARAM_INT);
    $insert->bindValue("n", "12.50");
    $insert->bindValue("t", "it's");
    $insert->bindValue("y", "\0\xff", PDO::PARAM_LOB);
    $insert->execute();
    equal($insert->fetchColumn(), 1);
    equal($db->lastInsertId(), "1");
    $found = $db->query("SELECT b, i, n, t FROM ph")->fetch(PDO::FETCH_NUM);
    equal($found, [true, -8, "12.50", "it's"]);
    equal(bin2hex(stream_get_contents($db->query("SELECT y FROM ph")->fetchColumn())), "00ff");
    $update = $db->prepare("UPDATE ph SET t = ? WHERE id = ?");
    $update->execute(["new", 1]);
    equal($update->rowCount(), 1);
});
step("transactions", function () use ($db) {
    $db->beginTransaction();
    $db->exec("INSERT INTO ph (id) VALUES (5)");
    $db->exec("SAVEPOINT s");
    try {
        $db->exec("INSERT INTO ph (id) VALUES (5)");
    } catch (PDOException $error) {
        equal($error->getCode(), "23505");
    }
    $db->exec("ROLLBACK TO SAVEPOINT s");
    $db->commit();
    equal($db->query("SELECT count(*) FROM ph")->fetchColumn(), 2);
});
step("copies_and_meta_data", function () use ($db) {
    $db->pgsqlCopyFromArray("ph", ["50\tt\t1\t1.00\tx\t\\\\x00"]);
    equal(count($db->pgsqlCopyToArray("ph")), 3);
    $meta = $db->query("SELECT n FROM ph")->getColumnMeta(0);
    equal([$meta["native_type"], $meta["table"]], ["numeric", "ph"]);
    $cursor = $db->prepare("SELECT generate_series(1, 5)", [PDO::ATTR_EMULATE_PREPARES => true]);
    $cursor->execute();
    equal(count($cursor->fetchAll()), 5);
});
step("pgsql_functions", function () use ($at, $name) {
    $c = pg_connect("host={$at['host']} port={$at['port']} user={$at['user']} dbname=$name");
    equal(pg_fetch_row(pg_query_params($c, "SELECT $1::int + 1, $2::text", [1, "x"])), ["2", "x"]);
    pg_insert($c, "ph", ["id" => 70, "t" => "by pg_insert"]);
    equal(count(pg_select($c, "ph", ["id" => 70])), 1);
    equal(array_keys(pg_meta_data($c, "ph")), ["id", "b", "i", "n", "t", "y"]);
    pg_send_query($c, "SELECT pg_sleep(30)");
    equal(pg_cancel_query($c), true);
    equal(pg_field_table(pg_query($c, "SELECT t FROM ph"), 0), "ph");
});
