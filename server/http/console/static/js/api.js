// SQL over HTTP: statements whose answers are small and that need no session of their own.

let lastUser = ""; // who was signed in before
let credentials = null; // {user, password}, kept in memory and in the tab's own storage
const TAB_KEY = "foreshore.credentials";

try {
  credentials = JSON.parse(sessionStorage.getItem(TAB_KEY) || "null");
} catch {
  credentials = null;
}

const listeners = new Set();

/** Call `listener` when the server asks for a password; returns a function that ends it. */
export function onSignedOut(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function signedInAs() {
  return credentials;
}

/** The role of who is signed in, or was last. */
export function lastSignedIn() {
  return credentials?.user || lastUser;
}

export function setCredentials(value) {
  if (credentials && !value) lastUser = credentials.user;
  credentials = value;
  try {
    if (value) sessionStorage.setItem(TAB_KEY, JSON.stringify(value));
    else sessionStorage.removeItem(TAB_KEY);
  } catch {
    return; // kept in memory only: a reload asks again
  }
}

export function signOut(message = "") {
  setCredentials(null);
  for (const listener of listeners) listener(message);
}

/** An error of a statement, with PostgreSQL's fields. */
export class SqlError extends Error {
  constructor(fields) {
    super(fields.message);
    this.fields = fields;
  }
}

/** The server cannot be reached, or answers in no way that this page knows. */
export class Unreachable extends Error {}

function basic({ user, password }) {
  const bytes = new TextEncoder().encode(`${user}:${password}`);
  return "Basic " + btoa(Array.from(bytes, (b) => String.fromCharCode(b)).join(""));
}

export const API = new URL("../../api/", import.meta.url);
const APPLICATION = "foreshore console";
const DATABASE_KEY = "foreshore.database";

let database = null; // that statements run in; null: the server's first one

try {
  database = sessionStorage.getItem(DATABASE_KEY);
} catch {
  database = null;
}

/** Let statements run in another database from now on; null: in the server's first one. */
export function setDatabase(name) {
  database = name;
  try {
    if (name === null) sessionStorage.removeItem(DATABASE_KEY);
    else sessionStorage.setItem(DATABASE_KEY, name);
  } catch {
    return; // kept in memory only
  }
}

/** The options of a session of the console. */
export function optionsOf(application = APPLICATION) {
  return { application_name: application, ...(database === null ? {} : { database }) };
}

/** Whether the chosen database is not there any more: then the server's first one is chosen again. */
export function forgetsDatabase(error) {
  if (database === null || error?.code !== "3D000") return false;
  setDatabase(null);
  return true;
}
const TIMEOUT_MS = 30_000;

async function post(body) {
  const asked = credentials;
  const headers = { "Content-Type": "application/json" };
  if (credentials) headers.Authorization = basic(credentials);
  let response;
  try {
    response = await fetch(new URL("sql", API), {
      method: "POST",
      headers,
      body: JSON.stringify({ ...body, options: optionsOf() }),
      credentials: "omit", // the page asks for the password itself
      cache: "no-store",
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
  } catch (error) {
    throw new Unreachable(`The server does not answer: ${error.message}`);
  }
  let answer;
  try {
    answer = await response.json();
  } catch {
    throw new Unreachable(`The server answered with status ${response.status}.`);
  }
  if (response.status === 401) {
    if (credentials === asked) signOut(asked ? answer.error?.message || "" : ""); // else another has signed in meanwhile
    throw new SqlError(answer.error || { message: "Sign in first." });
  }
  if (!response.ok && forgetsDatabase(answer.error)) return post(body);
  if (!response.ok) throw new SqlError(answer.error || { message: `Status ${response.status}` });
  return answer.results;
}

/** The result of one statement as a Blob of a media type; it may take as long as it takes. */
export async function file(query, type) {
  const headers = { "Content-Type": "application/json", Accept: type };
  if (credentials) headers.Authorization = basic(credentials);
  let response;
  try {
    const body = JSON.stringify({ query, options: optionsOf() });
    response = await fetch(new URL("sql", API), { method: "POST", headers, body, credentials: "omit", cache: "no-store" });
    if (response.ok) return await response.blob();
  } catch (error) {
    throw new Unreachable(`The answer did not come whole: ${error.message}`);
  }
  const answer = await response.json().catch(() => ({}));
  throw new SqlError(answer.error || { message: `Status ${response.status}` });
}

function checked(results) {
  const failed = results.find((result) => result.error);
  if (failed) throw new SqlError(failed.error);
  return results;
}

/** Rows as objects by column name. */
export function objects(result) {
  const names = result.desc.columns.map((column) => column.name);
  return result.rows.map((row) => Object.fromEntries(names.map((name, i) => [name, row[i]])));
}

/** Run several statements in one request; returns for each an array of rows as objects. */
export async function statements(texts) {
  const results = checked(await post({ query: texts.join(";\n") }));
  return results.map((result) => (result.rows ? objects(result) : []));
}

/** Run one statement with parameters ($1, ...); returns its result as the server gave it. */
export async function statement(query, params = []) {
  const given = params.map((value) => (value === null ? null : String(value)));
  return checked(await post({ queries: [{ query, params: given }] }))[0];
}

export async function rows(query, params = []) {
  return objects(await statement(query, params));
}
