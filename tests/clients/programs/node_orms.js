// Migrations and ORM work of knex, TypeORM, Sequelize and Drizzle. Run as: node node_orms.js URL
const { equal, fails, run } = require("./steps.js");

const url = process.argv[2];

const steps = {
  knex: async () => {
    const knex = require("knex")({ client: "pg", connection: url });
    const source = {
      getMigrations: async () => ["one", "two"],
      getMigrationName: (name) => name,
      getMigration: async (name) =>
        name === "one"
          ? {
              up: async (k) => {
                await k.schema.createTable("k_user", (t) => {
                  t.increments("id");
                  t.string("name", 40).notNullable().unique();
                  t.jsonb("data");
                  t.timestamps(true, true);
                });
                await k.schema.createTable("k_post", (t) => {
                  t.bigIncrements("id");
                  t.integer("user_id").references("id").inTable("k_user").onDelete("CASCADE").index();
                  t.decimal("price", 8, 2).defaultTo(1);
                });
              },
              down: (k) => k.schema.dropTable("k_post").dropTable("k_user"),
            }
          : {
              up: (k) => k.schema.alterTable("k_post", (t) => (t.text("body"), t.renameColumn("price", "cost"))),
              down: (k) => k.schema.alterTable("k_post", (t) => (t.dropColumn("body"), t.renameColumn("cost", "price"))),
            },
    };
    try {
      equal((await knex.migrate.latest({ migrationSource: source }))[1], ["one", "two"]);
      const [{ id }] = await knex("k_user").insert({ name: "Ann", data: { k: 1 } }).returning("id");
      await knex("k_post").insert([{ user_id: id, body: "x" }, { user_id: id, cost: 2 }]);
      await knex("k_user").insert({ name: "Ann", data: {} }).onConflict("name").merge(["data"]);
      await fails("23505", () => knex.transaction((t) => t("k_user").insert({ name: "Ann" })));
      const rows = await knex("k_post").join("k_user", "k_user.id", "user_id").select("cost").orderBy("k_post.id");
      equal(rows.map((r) => r.cost), ["1.00", "2.00"]);
      equal(Object.keys(await knex("k_post").columnInfo()), ["id", "user_id", "cost", "body"]);
      equal(await knex.schema.hasTable("k_user"), true);
      await knex.migrate.rollback({ migrationSource: source }, true);
    } finally {
      await knex.destroy();
    }
  },
  sequelize: async () => {
    const { Sequelize, DataTypes } = require("sequelize");
    const sequelize = new Sequelize(url, { logging: false });
    try {
      const User = sequelize.define("SUser", {
        name: { type: DataTypes.STRING(40), unique: true, allowNull: false },
        data: DataTypes.JSONB,
        mood: DataTypes.ENUM("low", "high"),
        tags: DataTypes.ARRAY(DataTypes.TEXT),
      });
      const Post = sequelize.define("SPost", { price: DataTypes.DECIMAL(8, 2) });
      User.hasMany(Post);
      Post.belongsTo(User);
      await sequelize.sync();
      await sequelize.sync({ alter: true });
      const ann = await User.create({ name: "Ann", data: { k: 1 }, mood: "low", tags: ["a"] });
      await ann.createSPost({ price: 2.5 });
      await fails("23505", () => sequelize.transaction((t) => User.create({ name: "Ann" }, { transaction: t })));
      await User.upsert({ id: ann.id, name: "Ann", mood: "high" });
      const found = await User.findOne({ include: Post, where: { data: { k: 1 } } });
      equal([found.mood, found.SPosts[0].price], ["high", "2.50"]);
      const { count } = await User.findAndCountAll({ where: { tags: { [require("sequelize").Op.contains]: ["a"] } } });
      equal(count, 1);
      equal((await sequelize.getQueryInterface().showAllTables()).includes("SUsers"), true);
    } finally {
      await sequelize.close();
    }
  },
  typeorm: async () => {
    require("reflect-metadata");
    const { DataSource, EntitySchema } = require("typeorm");
    const Author = new EntitySchema({
      name: "TAuthor",
      columns: {
        id: { type: Number, primary: true, generated: true },
        name: { type: String, length: 40, unique: true },
        made: { type: "timestamptz", createDate: true },
        data: { type: "jsonb", nullable: true },
      },
      relations: { books: { type: "one-to-many", target: "TBook", inverseSide: "author", cascade: true } },
    });
    const Book = new EntitySchema({
      name: "TBook",
      columns: { id: { type: Number, primary: true, generated: true }, price: { type: "numeric", precision: 8, scale: 2 } },
      relations: { author: { type: "many-to-one", target: "TAuthor", inverseSide: "books", onDelete: "CASCADE" } },
      indices: [{ columns: ["price"] }],
    });
    const source = new DataSource({ type: "postgres", url, entities: [Author, Book], installExtensions: false });
    await source.initialize();
    try {
      await source.synchronize();
      const again = await source.driver.createSchemaBuilder().log();
      equal(again.upQueries.map((q) => q.query), []);
      const authors = source.getRepository("TAuthor");
      await authors.save({ name: "Ann", data: { k: 1 }, books: [{ price: 1.5 }, { price: 2 }] });
      const found = await authors.find({ relations: { books: true } });
      equal(found[0].books.map((b) => b.price).sort(), ["1.50", "2.00"]);
      await fails("23505", () => source.transaction((m) => m.getRepository("TAuthor").save({ name: "Ann" })));
      const n = await source.createQueryBuilder("TBook", "b").where("b.price > :p", { p: 1.7 }).getCount();
      equal(n, 1);
    } finally {
      await source.destroy();
    }
  },
  drizzle: async () => {
    const { drizzle } = require("drizzle-orm/node-postgres");
    const { pgTable, serial, text, integer, jsonb } = require("drizzle-orm/pg-core");
    const { eq, sql, count } = require("drizzle-orm");
    const { Pool } = require("pg");
    const pool = new Pool({ connectionString: url });
    const db = drizzle(pool);
    const thing = pgTable("d_thing", { id: serial("id").primaryKey(), name: text("name").notNull(), n: integer("n"), j: jsonb("j") });
    try {
      await db.execute(sql`CREATE TABLE d_thing (id serial PRIMARY KEY, name text NOT NULL, n int, j jsonb)`);
      const made = await db.insert(thing).values([{ name: "a", n: 1, j: { k: 1 } }, { name: "b" }]).returning();
      equal(made.map((m) => m.id), [1, 2]);
      await db.update(thing).set({ n: 5 }).where(eq(thing.name, "b"));
      await db.insert(thing).values({ id: 1, name: "c" }).onConflictDoUpdate({ target: thing.id, set: { name: "c" } });
      await db.transaction(async (t) => {
        await t.delete(thing).where(eq(thing.id, 2));
        await t.transaction(async (s) => s.rollback()).catch(() => {});
      });
      equal(await db.select({ n: count() }).from(thing), [{ n: 1 }]);
    } finally {
      await pool.end();
    }
  },
};

run(steps);
