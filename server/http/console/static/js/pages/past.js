// Beside the editor: statements that were kept under a name, and those that ran.

import { html, useState } from "../../vendor/htm/preact.js";
import * as format from "../format.js";
import { runs } from "../runs.js";
import { Icon } from "../ui.js";

const SHOWN = 300; // characters of a statement in the list

export function Past({ state, onChoose }) {
  const [find, setFind] = useState("");
  const wanted = find.toLowerCase();
  const ran = state.history.filter((one) => one.text.toLowerCase().includes(wanted));
  const saved = state.saved.filter((one) => (one.name + "\n" + one.text).toLowerCase().includes(wanted));
  return html`<aside class="past" aria-label="History">
    <label class="search"><${Icon} name="search" size="14" /><input type="search" placeholder="Find" aria-label="Find in the history" value=${find} onInput=${(e) => setFind(e.target.value)} /></label>
    <h2>Saved</h2>
    <${Keep} text=${state.text} />
    <ul aria-label="Saved">${saved.map((one) => html`<li key=${one.name} class="kept"><button onClick=${() => onChoose(one.text)} title=${one.text}><b>${one.name}</b><code>${one.text.slice(0, SHOWN)}</code></button>
      <button class="small ghost remove" title="Remove" aria-label=${`Remove ${one.name}`} onClick=${() => runs.drop(one.name)}><${Icon} name="close" size="12" /></button></li>`)}</ul>
    <header><h2>History</h2><button class="small ghost" onClick=${() => runs.forgetHistory()}>Forget all</button></header>
    <ul aria-label="Ran">${ran.map((one) => html`<li key=${one.at + one.text}><button onClick=${() => onChoose(one.text)} title=${one.text}>
      <code>${one.text.slice(0, SHOWN)}</code><small class=${one.failed ? "bad-text" : "dim"}>${format.when(new Date(one.at))} · ${one.failed ? "failed" : format.duration(one.ms)}</small></button></li>`)}</ul>
    ${!ran.length && html`<div class="none">${find ? "Nothing has this in its text." : "Nothing yet. What you run is kept in this browser."}</div>`}
  </aside>`;
}

/** Keep what is in the editor under a name. */
function Keep({ text }) {
  const [name, setName] = useState("");
  const [failed, setFailed] = useState(false);
  const submit = (event) => {
    event.preventDefault();
    if (!name.trim()) return;
    setFailed(!runs.keep(name.trim(), text));
    setName("");
  };
  return html`<form class="keep" onSubmit=${submit}>
    <input value=${name} onInput=${(e) => setName(e.target.value)} maxlength="80" placeholder="Name for what is in the editor" aria-label="Name for what is in the editor" />
    <button class="small" disabled=${!name.trim() || !text.trim()}>Save</button>
    ${failed && html`<small class="bad-text">The browser keeps nothing: it is there until the page is closed.</small>`}
  </form>`;
}
