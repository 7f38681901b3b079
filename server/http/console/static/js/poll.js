// Asking the server again and again, lightly: never two requests at once, none while nobody looks,
// and the longer an answer takes, the longer until the next request.

import { useEffect, useRef, useState } from "../vendor/htm/preact.js";

const SHARE = 10; // the server works at most a tenth of the time for one page

export class Poller {
  constructor(ask, intervalMs) {
    this.ask = ask;
    this.intervalMs = intervalMs;
    this.users = 0;
    this.timer = null;
    this.busy = false;
    this.listeners = new Set();
    this.state = { data: null, error: null };
    document.addEventListener("visibilitychange", () => this.#wake());
  }

  subscribe(listener) {
    this.listeners.add(listener);
    this.#wake();
    return () => {
      this.listeners.delete(listener);
      if (!this.listeners.size) this.#sleep();
    };
  }

  /** Ask now, and again after the interval. */
  refresh() {
    this.#sleep();
    return this.#ask();
  }

  #sleep() {
    clearTimeout(this.timer);
    this.timer = null;
  }

  #wake() {
    if (this.listeners.size && !document.hidden && !this.busy && this.timer === null) this.#ask();
  }

  async #ask() {
    if (this.busy) return;
    this.busy = true;
    const began = performance.now();
    try {
      this.state = { data: await this.ask(), error: null };
    } catch (error) {
      this.state = { data: this.state.data, error };
    }
    this.busy = false;
    const took = performance.now() - began;
    if (this.listeners.size && !document.hidden) {
      this.timer = setTimeout(() => {
        this.timer = null;
        this.#wake();
      }, Math.max(this.intervalMs, SHARE * took));
    }
    for (const listener of [...this.listeners]) listener(this.state);
  }
}

/** The newest answer of a poller that others may use too. */
export function useShared(poller) {
  const [state, setState] = useState(poller.state);
  useEffect(() => {
    setState(poller.state);
    return poller.subscribe(setState);
  }, [poller]);
  return state;
}

/** Ask at intervals while the component is shown; `key` says what is asked. */
export function usePoll(ask, intervalMs, key = "") {
  const [state, setState] = useState({ data: null, error: null, key });
  const poller = useRef(null);
  useEffect(() => {
    const mine = new Poller(ask, intervalMs);
    poller.current = mine;
    return mine.subscribe((found) => setState({ ...found, key }));
  }, [key, intervalMs]);
  const shown = state.key === key ? state : { data: null, error: null };
  return { ...shown, refresh: () => poller.current?.refresh() };
}
