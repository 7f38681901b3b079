# Perl's DBD::Pg: statements, transactions, COPY, introspection. Run as: perl perl.pl URL
use strict;
use warnings;
use DBI;
use DBD::Pg qw(:pg_types);

my ($user, $host, $port, $database) = $ARGV[0] =~ m{//(\w+)@([^:]+):(\d+)/(\w+)};
my @connect = ("dbi:Pg:dbname=$database;host=$host;port=$port", $user, "",
    { RaiseError => 1, PrintError => 0, AutoCommit => 1 });
my $db = DBI->connect(@connect);

sub equal { my ($found, $wanted) = @_; die "$found instead of $wanted\n" unless $found eq $wanted }

sub step {
    my ($name, $work) = @_;
    my $done = eval { $work->(); 1 };
    (my $reason = $@ // "") =~ s/\s+/ /g;
    print $done ? "ok $name\n" : "failed $name: " . substr($reason, 0, 300) . "\n";
}

step crud => sub {
    $db->do("CREATE TABLE pl (id serial PRIMARY KEY, i int, n numeric(8,2), t text, y bytea, a int[])");
    my $insert = $db->prepare("INSERT INTO pl (i, n, t, y, a) VALUES (?, ?, ?, ?, ?)");
    $insert->bind_param(4, undef, { pg_type => PG_BYTEA });
    $insert->execute(-8, "12.50", "it's", "\0\xff", [1, 2]);
    equal($db->last_insert_id(undef, undef, "pl", undef), 1);
    my $row = $db->selectrow_hashref("SELECT * FROM pl WHERE t = ?", undef, "it's");
    equal("$row->{n} $row->{a}[1] " . unpack("H*", $row->{y}), "12.50 2 00ff");
    equal($db->do("UPDATE pl SET i = i + ? WHERE id = ANY(?)", undef, 1, [1, 9]), 1);
    my $many = $db->prepare("INSERT INTO pl (i) VALUES (?)");
    equal($many->execute_array({}, [10 .. 29]), 20);
};
step transactions => sub {
    $db->begin_work;
    $db->do("INSERT INTO pl (id) VALUES (100)");
    $db->pg_savepoint("s");
    eval { $db->do("INSERT INTO pl (id) VALUES (100)") };
    equal($db->state, "23505");
    $db->pg_rollback_to("s");
    $db->commit;
    equal($db->selectrow_array("SELECT count(*) FROM pl WHERE id = 100"), 1);
    equal($db->ping, 1);
};
step copies => sub {
    $db->do("COPY pl (i, t) FROM STDIN");
    $db->pg_putcopydata("77\tcopied\n");
    $db->pg_putcopyend;
    $db->do("COPY (SELECT i, t FROM pl WHERE i = 77) TO STDOUT");
    my $line = "";
    equal($db->pg_getcopydata($line) > 0 ? $line : "", "77\tcopied\n");
    1 while $db->pg_getcopydata($line) >= 0;
};
step introspection => sub {
    equal(join(",", map { $_->{COLUMN_NAME} } @{ $db->column_info(undef, "public", "pl", "%")->fetchall_arrayref({}) }),
        "id,i,n,t,y,a");
    equal(join(",", $db->primary_key(undef, "public", "pl")), "id");
    equal(scalar(grep { /pl/ } $db->tables(undef, "public", "pl", "TABLE")), 1);
    $db->foreign_key_info(undef, undef, undef, undef, "public", "pl");
    $db->statistics_info(undef, "public", "pl", 0, 0)->fetchall_arrayref;
    my $st = $db->prepare("SELECT n, t FROM pl");
    $st->execute;
    equal(join(",", @{ $st->{pg_type} }) . " $st->{PRECISION}[0] $st->{SCALE}[0]", "numeric,text 8 2");
};
step asynchronous_and_cancel => sub {
    my $st = $db->prepare("SELECT pg_sleep(30)", { pg_async => 1 });
    $st->execute;
    equal($db->pg_cancel, 1);
    equal($db->selectrow_array("SELECT 1"), 1);
};
