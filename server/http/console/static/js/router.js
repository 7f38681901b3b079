// Where in the console we are: #/page/part/part?name=value. The address holds all that a link needs.

import { useEffect, useState } from "../vendor/htm/preact.js";

export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const parts = path.split("/").filter(Boolean).map(decode);
  return { page: parts[0] || "overview", parts: parts.slice(1), query: new URLSearchParams(query) };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // a % that encodes nothing
  }
}

export function link(page, parts = [], query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const search = given.length ? "?" + new URLSearchParams(given) : "";
  return "#/" + [page, ...parts].map(encodeURIComponent).join("/") + search;
}

export function go(target) {
  location.hash = target;
}

/** Change the query of the present address without a new entry in the browser's history. */
export function setQuery(changes) {
  const { page, parts, query } = parse(location.hash);
  const all = { ...Object.fromEntries(query), ...changes };
  history.replaceState(null, "", link(page, parts, all));
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}

export function useRoute() {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const changed = () => setHash(location.hash);
    window.addEventListener("hashchange", changed);
    return () => window.removeEventListener("hashchange", changed);
  }, []);
  return parse(hash);
}

/** An object's name in an address: its parts, with dots only between them. */
export function objectPath(database, schema, name) {
  const part = (text) => text.replaceAll("%", "%25").replaceAll(".", "%2E");
  return [database, schema, name].filter((text) => text !== null && text !== undefined).map(part).join(".");
}

export function objectParts(path) {
  return path.split(".").map(decode);
}

export function objectLink(object, query = {}) {
  return link("objects", [objectPath(object.database_name, object.schema_name, object.name)], query);
}
