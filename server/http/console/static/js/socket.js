// A session over a WebSocket: statements run in it one after another, as in psql.
//
//   const session = new Session({state: (state) => ..., lost: (message) => ...});
//   session.run("SELECT 1; SELECT 2", {begin, columns, rows, done, error, notice, ready});
//   session.cancel();
//
// Messages of the server are {type, payload}; handlers get them in their order.

import { API, forgetsDatabase, optionsOf, signedInAs, signOut } from "./api.js";

export class Session {
  constructor({ application = "foreshore console", onState = () => {}, onLost = () => {} } = {}) {
    this.application = application;
    this.onState = onState;
    this.onLost = onLost;
    this.socket = null;
    this.running = null; // the handlers of the request that runs
    this.waiting = null; // {text, handlers} until the session is ready for the first time
    this.transaction = "I";
    this.connection = null;
  }

  /** Run statements; the request before it must have ended. */
  run(text, handlers) {
    if (this.running || this.waiting) throw new Error("a statement runs already");
    this.waiting = { text, handlers };
    if (!this.socket) this.#connect();
    else this.#start();
  }

  cancel() {
    if (this.running) this.#send({ cancel: true });
    else if (this.waiting) this.close();
  }

  close() {
    const socket = this.socket;
    const request = this.running || this.waiting?.handlers;
    this.socket = this.running = this.waiting = null;
    if (socket) socket.close();
    if (request) request.ended?.("The session was closed.");
  }

  #connect() {
    const url = new URL("sql/ws", API);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(url);
    this.socket = socket;
    this.ready = false;
    socket.onopen = () => {
      const who = signedInAs() || {};
      this.#send({ ...who, options: optionsOf(this.application), batches: true });
    };
    socket.onmessage = (event) => {
      if (this.socket === socket) this.#message(JSON.parse(event.data));
    };
    socket.onclose = (event) => {
      if (this.socket === socket) this.#closed(event.reason || "The connection to the server was lost.");
    };
  }

  #send(message) {
    this.socket.send(JSON.stringify(message));
  }

  #start() {
    const { text, handlers } = this.waiting;
    this.waiting = null;
    this.running = handlers;
    this.#send({ query: text });
  }

  #message({ type, payload }) {
    const handlers = this.running;
    switch (type) {
      case "ReadyForQuery":
        this.ready = true;
        this.transaction = payload;
        this.running = null;
        this.onState(payload);
        if (handlers) handlers.ready?.(payload);
        if (this.waiting) this.#start();
        break;
      case "BackendKeyData":
        this.connection = payload.conn_id;
        break;
      case "CommandStarting":
        handlers?.begin?.(payload);
        break;
      case "Rows":
        handlers?.columns?.(payload.columns);
        break;
      case "RowBatch":
        handlers?.rows?.(payload);
        break;
      case "CommandComplete":
        handlers?.done?.(payload);
        break;
      case "Error":
        if (!this.ready) this.#refused(payload);
        else handlers?.error?.(payload);
        break;
      case "Notice":
        (handlers || this.waiting?.handlers)?.notice?.(payload);
        break;
    }
  }

  #refused(error) {
    const request = this.waiting?.handlers;
    const socket = this.socket;
    this.socket = this.running = this.waiting = null;
    socket.close();
    forgetsDatabase(error);
    request?.error?.(error);
    request?.ended?.(error.message);
    if (error.code === "28P01" || error.code === "28000") signOut(signedInAs() ? error.message : "");
  }

  #closed(message) {
    const request = this.running || this.waiting?.handlers;
    this.socket = this.running = this.waiting = null;
    this.transaction = "I";
    request?.ended?.(message);
    this.onLost(message, Boolean(request));
  }
}
