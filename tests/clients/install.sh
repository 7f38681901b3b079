#!/usr/bin/env bash
# Installs the clients of tests/clients that are no dependencies of the project, into FOLDER.
# Those of other languages (java, go, php, ruby, perl, pgbouncer, ODBC) come with the system:
# Debian has libpostgresql-jdbc-java libhikaricp-java libslf4j-java golang-go golang-github-lib-pq-dev
# golang-github-jackc-pgx-v4-dev odbc-postgresql odbcinst
# php-cli php-pgsql ruby-pg libdbd-pg-perl pgbouncer.
set -euo pipefail
folder=${1:?usage: install.sh FOLDER}
mkdir -p "$folder/node"
test -x "$folder/python/bin/python" || "${PYTHON:-python3}" -m venv "$folder/python"
"$folder/python/bin/python" -m pip install --quiet --disable-pip-version-check \
    'psycopg[binary,pool]' psycopg2-binary asyncpg pg8000 'sqlalchemy[asyncio]>=2' alembic 'django>=5' \
    pandas polars pyarrow adbc-driver-postgresql connectorx pgcli pyodbc peewee pony tortoise-orm 'dbt-core<1.12' dbt-postgres dbt-materialize
if command -v npm >/dev/null; then
    npm install --prefix "$folder/node" --no-audit --no-fund --ignore-scripts \
        pg pg-cursor pg-copy-streams pg-query-stream postgres knex sequelize typeorm reflect-metadata drizzle-orm \
        prisma @prisma/client @prisma/adapter-pg
fi
