// What the database has: objects with their schemas, owners, sizes and dependencies.

import { statements } from "./api.js";
import { Poller } from "./poll.js";

const OBJECTS = `SELECT n.id, n.name, n.object_type AS type, n.schema_name, n.database_name, n.cluster_id, o.owner_id, o.oid
  FROM mz_internal.mz_object_fully_qualified_names n JOIN mz_objects o ON o.id = n.id`;

const outside = (kind) => `SELECT c.id, c.name, '${kind}' AS type, s.name AS schema_name, d.name AS database_name,
    NULL AS cluster_id, c.owner_id, c.oid${kind === "connection" ? ", c.type AS reaches" : ""}
  FROM mz_${kind}s c JOIN mz_schemas s ON s.id = c.schema_id JOIN mz_databases d ON d.id = s.database_id`;

const QUERIES = {
  objects: OBJECTS,
  connections: outside("connection"),
  secrets: outside("secret"),
  databases: "SELECT name FROM mz_databases ORDER BY name",
  schemas: "SELECT s.name, d.name AS database FROM mz_schemas s JOIN mz_databases d ON d.id = s.database_id",
  dependencies: "SELECT object_id, referenced_object_id FROM mz_internal.mz_object_dependencies",
  sizes: "SELECT object_id, size_bytes FROM mz_internal.mz_storage_sizes",
  indexes: "SELECT id, on_id FROM mz_indexes",
  roles: "SELECT id, oid, name FROM mz_roles",
  clusters: "SELECT id, name, size, replication_factor, owner_id FROM mz_clusters",
  replicas: "SELECT id, name, cluster_id, size, workers FROM mz_cluster_replicas",
  here: "SELECT current_user AS role, current_database() AS database, version() AS version",
};

/** A catalog that answers by id: objects, who uses whom, sizes, owners. */
export function catalogOf(found) {
  const byId = (list) => new Map(list.map((item) => [item.id, item]));
  const roles = byId(found.roles);
  const clusters = byId(found.clusters);
  const sizes = new Map(found.sizes.map((size) => [size.object_id, Number(size.size_bytes)]));
  const indexOf = new Map(found.indexes.map((index) => [index.id, index.on_id]));
  const list = [...found.objects, ...found.connections, ...found.secrets]
    .map((object) => ({
      ...object,
      owner: roles.get(object.owner_id)?.name ?? null,
      cluster: clusters.get(object.cluster_id)?.name ?? null,
      size: sizes.get(object.id) ?? null,
      on_id: indexOf.get(object.id) ?? null,
      system: object.database_name === null,
    }))
    .sort((a, b) => compare(a.name, b.name));
  const objects = byId(list);
  const uses = new Map();
  const usedBy = new Map();
  for (const { object_id: user, referenced_object_id: used } of found.dependencies) {
    if (!objects.has(user) || !objects.has(used)) continue;
    append(uses, user, used);
    append(usedBy, used, user);
  }
  const indexes = new Map();
  for (const [index, on] of indexOf) append(indexes, on, index);
  return { ...found, list, objects, uses, usedBy, indexes, clustersById: clusters };
}

function append(map, key, value) {
  if (map.has(key)) map.get(key).push(value);
  else map.set(key, [value]);
}

export function compare(a, b) {
  return a < b ? -1 : a > b ? 1 : 0;
}

export async function readCatalog() {
  const names = Object.keys(QUERIES);
  const answers = await statements(Object.values(QUERIES));
  return catalogOf(Object.fromEntries(names.map((name, i) => [name, answers[i]])));
}

export const catalog = new Poller(readCatalog, 4000);

/** All that `id` is reached from by following `next`, itself included. */
export function closure(id, next) {
  const found = new Set([id]);
  const open = [id];
  while (open.length) {
    for (const other of next.get(open.pop()) || []) {
      if (!found.has(other)) {
        found.add(other);
        open.push(other);
      }
    }
  }
  return found;
}
