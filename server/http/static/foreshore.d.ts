/** A value of a row: numbers and booleans as they are, json as itself, all else as PostgreSQL's text. */
export type Value =
  | null
  | boolean
  | number
  | string
  | Value[]
  | { [name: string]: Value };

export type Row = Record<string, Value>;

export interface Change<R extends Row = Row> {
  /** How many copies of the row have come; negative ones have gone. */
  count: number;
  row: R;
}

export interface ChangeInfo<R extends Row = Row> {
  /** The time of the copy, in milliseconds since 1970. */
  time: bigint;
  changes: Change<R>[];
  /** Whether the changes are the whole result, in place of what the copy had. */
  reset: boolean;
}

export type Auth = { user: string; password?: string } | { token: string };

/** A Date is sent as its text, an array for an array or json, an object for json. */
export type Parameter = string | number | bigint | boolean | null | Date | object;

export interface LiveOptions<R extends Row = Row> {
  /** The columns that identify a row, for `get`. */
  key?: string | string[];
  /** The values of the query's parameters. */
  params?: Parameter[];
  /** Session variables. */
  options?: Record<string, string | number | boolean>;
  /** The server; by default the origin of the page. */
  url?: string;
  auth?: Auth;
  /** Called once for each time at which the result has changed. */
  onChange?: (copy: Live<R>, change: ChangeInfo<R>) => void;
  /** Called when a connection fails or ends; the copy is kept, and another one is tried. */
  onError?: (error: Error | ForeshoreError) => void;
  fetch?: typeof fetch;
}

/** An error of the server. */
export class ForeshoreError extends Error {
  constructor(
    fields: { message?: string; code?: string; detail?: string; hint?: string },
    status?: number,
  );
  /** PostgreSQL's SQLSTATE. */
  code?: string;
  detail?: string;
  hint?: string;
  /** The status of HTTP, if the request was refused. */
  status?: number;
}

/** A local copy of a query's result, right as of one time at every moment. */
export interface Live<R extends Row = Row> {
  /** The time of the copy, in milliseconds since 1970; null before the first result. */
  readonly time: bigint | null;
  /** Whether it follows the query; false once it is closed or has failed for good. */
  readonly following: boolean;
  /** Resolved with the copy when the first result is there; rejected if that fails for good. */
  readonly ready: Promise<Live<R>>;
  readonly columns: string[];
  /** The number of rows. */
  readonly size: number;
  /** All rows as arrays of values in the query's order, equal ones as often as they are there. */
  values(): Value[][];
  rows(): R[];
  /** The row with these values of the key's columns. */
  get(...key: Value[]): R | undefined;
  /** Resolved when the copy has all changes up to a time; rejected if it stops before. */
  reached(time: bigint | number | string): Promise<Live<R>>;
  /** Stop following; the copy stays as it is. */
  close(): void;
}

/** Follow a query and return its local copy. */
export function live<R extends Row = Row>(query: string, options?: LiveOptions<R>): Live<R>;
