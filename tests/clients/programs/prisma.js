// Prisma 7 over its adapter of node-postgres. Run as: node prisma.js URL
//
// The client is generated, which needs no engine; migrations and introspection need one that Prisma
// downloads, and are not tried.
const { execFileSync } = require("child_process");
const fs = require("fs");
const os = require("os");
const path = require("path");
const { Client } = require("pg");
const { equal, fails, run } = require("./steps.js");

const url = process.argv[2];
const SCHEMA = `
generator client {
  provider = "prisma-client-js"
  output   = "./client"
}
datasource db {
  provider = "postgresql"
}
enum Role {
  USER
  ADMIN
}
model User {
  id      Int      @id @default(autoincrement())
  email   String   @unique
  name    String?
  role    Role     @default(USER)
  made    DateTime @default(now())
  posts   Post[]
  profile Profile?
  @@index([name])
}
model Profile {
  userId Int    @id
  bio    String
  user   User   @relation(fields: [userId], references: [id], onDelete: Cascade)
}
model Post {
  id       Int     @id @default(autoincrement())
  title    String  @db.VarChar(80)
  score    Float   @default(0)
  price    Decimal @default(0) @db.Decimal(10, 2)
  views    BigInt  @default(0)
  data     Json?
  raw      Bytes?
  labels   String[]
  live     Boolean @default(false)
  authorId Int
  author   User    @relation(fields: [authorId], references: [id])
  tags     Tag[]
}
model Tag {
  id    Int    @id @default(autoincrement())
  name  String @unique
  posts Post[]
}
`;
// What its migration of this schema says.
const TABLES = `
CREATE TYPE "Role" AS ENUM ('USER', 'ADMIN');
CREATE TABLE "User" ("id" SERIAL NOT NULL, "email" TEXT NOT NULL, "name" TEXT, "role" "Role" NOT NULL DEFAULT 'USER',
  "made" TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP, CONSTRAINT "User_pkey" PRIMARY KEY ("id"));
CREATE TABLE "Profile" ("userId" INTEGER NOT NULL, "bio" TEXT NOT NULL,
  CONSTRAINT "Profile_pkey" PRIMARY KEY ("userId"));
CREATE TABLE "Post" ("id" SERIAL NOT NULL, "title" VARCHAR(80) NOT NULL, "score" DOUBLE PRECISION NOT NULL DEFAULT 0,
  "price" DECIMAL(10,2) NOT NULL DEFAULT 0, "views" BIGINT NOT NULL DEFAULT 0, "data" JSONB, "raw" BYTEA,
  "labels" TEXT[], "live" BOOLEAN NOT NULL DEFAULT false, "authorId" INTEGER NOT NULL,
  CONSTRAINT "Post_pkey" PRIMARY KEY ("id"));
CREATE TABLE "Tag" ("id" SERIAL NOT NULL, "name" TEXT NOT NULL, CONSTRAINT "Tag_pkey" PRIMARY KEY ("id"));
CREATE TABLE "_PostToTag" ("A" INTEGER NOT NULL, "B" INTEGER NOT NULL,
  CONSTRAINT "_PostToTag_AB_pkey" PRIMARY KEY ("A", "B"));
CREATE UNIQUE INDEX "User_email_key" ON "User"("email");
CREATE INDEX "User_name_idx" ON "User"("name");
CREATE UNIQUE INDEX "Tag_name_key" ON "Tag"("name");
CREATE INDEX "_PostToTag_B_index" ON "_PostToTag"("B");
ALTER TABLE "Profile" ADD CONSTRAINT "Profile_userId_fkey" FOREIGN KEY ("userId") REFERENCES "User"("id")
  ON DELETE CASCADE ON UPDATE CASCADE;
ALTER TABLE "Post" ADD CONSTRAINT "Post_authorId_fkey" FOREIGN KEY ("authorId") REFERENCES "User"("id")
  ON DELETE RESTRICT ON UPDATE CASCADE;
ALTER TABLE "_PostToTag" ADD CONSTRAINT "_PostToTag_A_fkey" FOREIGN KEY ("A") REFERENCES "Post"("id")
  ON DELETE CASCADE ON UPDATE CASCADE;
ALTER TABLE "_PostToTag" ADD CONSTRAINT "_PostToTag_B_fkey" FOREIGN KEY ("B") REFERENCES "Tag"("id")
  ON DELETE CASCADE ON UPDATE CASCADE;
`;

function generated() {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "prisma-"));
  fs.writeFileSync(path.join(folder, "schema.prisma"), SCHEMA);
  fs.symlinkSync(process.env.NODE_PATH, path.join(folder, "node_modules"));
  const cli = path.join(process.env.NODE_PATH, "prisma", "build", "index.js");
  try {
    execFileSync("node", [cli, "generate", "--schema", "schema.prisma"], {
      cwd: folder,
      env: {
        ...process.env,
        CHECKPOINT_DISABLE: "1",
        PRISMA_SCHEMA_ENGINE_BINARY: process.execPath, // not started, but looked for
      },
    });
    return require(path.join(folder, "client"));
  } finally {
    process.on("exit", () => fs.rmSync(folder, { recursive: true }));
  }
}

const { PrismaPg } = require("@prisma/adapter-pg");
const { PrismaClient, Prisma } = generated();
const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: url, max: 4 }) });
const ids = (rows) => rows.map((row) => row.id);

const steps = {
  schema: async () => {
    const client = new Client({ connectionString: url });
    await client.connect();
    await client.query(TABLES);
    await client.end();
  },
  nested_creates: async () => {
    const user = await prisma.user.create({
      data: {
        email: "ann@x", name: "Ann", role: "ADMIN",
        profile: { create: { bio: "it's Ann" } },
        posts: {
          create: [
            {
              title: "one", price: new Prisma.Decimal("12.50"), views: 2n ** 40n, data: { a: [1, { b: null }] },
              raw: Buffer.from([0, 255]), labels: ["x y", 'q"'], live: true, score: 0.1,
              tags: { connectOrCreate: [{ where: { name: "red" }, create: { name: "red" } }] },
            },
            { title: "two", tags: { create: [{ name: "blue" }], connectOrCreate: [] } },
          ],
        },
      },
      include: { posts: { include: { tags: true }, orderBy: { id: "asc" } }, profile: true },
    });
    const [post] = user.posts;
    equal([user.role, user.profile.bio, String(post.price), post.views], ["ADMIN", "it's Ann", "12.5", 2n ** 40n]);
    equal([post.data, [...post.raw], post.labels, post.score], [{ a: [1, { b: null }] }, [0, 255], ["x y", 'q"'], 0.1]);
    equal(user.posts.map((p) => p.tags.map((t) => t.name)), [["red"], ["blue"]]);
  },
  filters: async () => {
    await prisma.user.createMany({ data: [1, 2, 3].map((i) => ({ email: `u${i}@x`, name: `User ${i}` })) });
    const count = (where) => prisma.user.count({ where });
    equal(await count({ name: { contains: "user", mode: "insensitive" } }), 3);
    equal(await count({ OR: [{ email: { startsWith: "u1" } }, { role: { in: ["ADMIN"] } }] }), 2);
    equal(await count({ posts: { some: { tags: { some: { name: "red" } } } } }), 1);
    equal(await count({ posts: { none: {} }, NOT: { name: null } }), 3);
    equal(await prisma.post.count({ where: { data: { path: ["a", "0"], equals: 1 } } }), 1);
    equal(await prisma.post.count({ where: { labels: { has: "x y" } } }), 1);
    equal(await prisma.post.count({ where: { price: { gt: 12 }, views: { gte: 1n } } }), 1);
  },
  pages_and_relations: async () => {
    const page = await prisma.user.findMany({ orderBy: [{ name: "desc" }, { id: "asc" }], skip: 1, take: 2 });
    equal(page.map((u) => u.name), ["User 2", "User 1"]);
    const after = await prisma.user.findMany({ cursor: { email: "u1@x" }, skip: 1, take: 2, orderBy: { id: "asc" } });
    equal(after.map((u) => u.email), ["u2@x", "u3@x"]);
    const counted = await prisma.user.findFirst({ where: { email: "ann@x" }, include: { _count: { select: { posts: true } } } });
    equal(counted._count.posts, 2);
    const many = await prisma.user.findMany({ orderBy: { posts: { _count: "desc" } }, select: { email: true }, take: 1 });
    equal(many, [{ email: "ann@x" }]);
    equal((await prisma.user.findMany({ distinct: ["role"], orderBy: { role: "asc" } })).map((u) => u.role), ["USER", "ADMIN"]);
  },
  aggregates: async () => {
    const all = await prisma.post.aggregate({ _sum: { price: true, views: true }, _avg: { score: true }, _max: { id: true }, _count: true });
    equal([String(all._sum.price), all._sum.views, all._avg.score, all._count], ["12.5", 2n ** 40n, 0.05, 2]);
    const groups = await prisma.post.groupBy({
      by: ["live"], _count: { _all: true }, having: { score: { _max: { gte: 0 } } }, orderBy: { live: "asc" },
    });
    equal(groups.map((g) => [g.live, g._count._all]), [[false, 1], [true, 1]]);
  },
  changes: async () => {
    const one = await prisma.post.update({
      where: { id: 1 },
      data: { views: { increment: 1 }, labels: { push: "new" }, tags: { disconnect: [{ name: "red" }] } },
      include: { tags: true },
    });
    equal([one.views, one.labels.length, one.tags], [2n ** 40n + 1n, 3, []]);
    const put = (name) => prisma.user.upsert({ where: { email: "bob@x" }, create: { email: "bob@x" }, update: { name } });
    equal([(await put("Bob")).name, (await put("Bob")).name], [null, "Bob"]);
    equal((await prisma.user.updateMany({ where: { name: { startsWith: "User" } }, data: { role: "ADMIN" } })).count, 3);
    const made = await prisma.tag.createManyAndReturn({ data: [{ name: "a" }, { name: "red" }, { name: "b" }], skipDuplicates: true });
    equal(made.map((t) => t.name).sort(), ["a", "b"]);
    const changed = await prisma.tag.updateManyAndReturn({ where: { name: "a" }, data: { name: "c" } });
    equal(changed.map((t) => t.name), ["c"]);
    equal((await prisma.tag.deleteMany({ where: { name: { in: ["b", "c"] } } })).count, 2);
  },
  errors: async () => {
    await fails("P2002", () => prisma.user.create({ data: { email: "ann@x" } }));
    await fails("P2003", () => prisma.post.create({ data: { title: "x", authorId: 999 } }));
    await fails("P2025", () => prisma.user.update({ where: { id: 999 }, data: { name: "x" } }));
    await fails("P2000", () => prisma.post.create({ data: { title: "x".repeat(81), authorId: 1 } }));
  },
  transactions: async () => {
    await fails("P2002", () =>
      prisma.$transaction([
        prisma.user.create({ data: { email: "gone@x" } }), prisma.user.create({ data: { email: "ann@x" } }),
      ]));
    equal(await prisma.user.count({ where: { email: "gone@x" } }), 0);
    const kept = await prisma.$transaction(
      async (t) => {
        const user = await t.user.create({ data: { email: "kept@x" } });
        await t.$executeRaw`UPDATE "User" SET "name" = ${"Kept"} WHERE "id" = ${user.id}`;
        return t.user.findUnique({ where: { id: user.id } });
      },
      { isolationLevel: "Serializable", timeout: 60000, maxWait: 60000 },
    );
    equal(kept.name, "Kept");
    await prisma.$transaction(async (t) => {
      await t.user.delete({ where: { email: "kept@x" } });
      throw new Error("back");
    }, { timeout: 60000, maxWait: 60000 }).catch((error) => equal(error.message, "back"));
    equal(await prisma.user.count({ where: { email: "kept@x" } }), 1);
  },
  raw_queries: async () => {
    const rows = await prisma.$queryRaw`SELECT id, ${"é"}::text AS t, 1.5::numeric AS n, now() AS at, ARRAY[1, 2] AS a
      FROM "User" WHERE email = ANY(${["ann@x"]})`;
    equal([rows[0].t, String(rows[0].n), rows[0].at instanceof Date, rows[0].a], ["é", "1.5", true, [1, 2]]);
    equal(await prisma.$executeRawUnsafe('UPDATE "User" SET "name" = "name" WHERE "id" <= $1', 2), 2);
    equal(ids(await prisma.$queryRaw(Prisma.sql`SELECT id FROM "User" WHERE id IN (${Prisma.join([1, 2])}) ORDER BY id`)), [1, 2]);
  },
  many_at_once: async () => {
    const found = await Promise.all([...Array(40).keys()].map((i) => prisma.user.findFirst({ where: { id: (i % 3) + 1 } })));
    equal(found.length, 40);
  },
  cascades: async () => {
    await fails("P2003", () => prisma.user.delete({ where: { email: "ann@x" } }));
    await prisma.post.deleteMany();
    await prisma.user.delete({ where: { email: "ann@x" } });
    equal([await prisma.profile.count(), await prisma.post.count()], [0, 0]);
    await prisma.$disconnect();
  },
};

run(steps);
