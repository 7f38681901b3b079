// Find a page or an object by a part of its name.

import { html, useEffect, useRef, useState } from "../../vendor/htm/preact.js";
import { catalog } from "../catalog.js";
import { kindName } from "../format.js";
import { link, objectLink } from "../router.js";
import { Dialog, Icon } from "../ui.js";

const MOST = 40;

/** How well a text fits: 0 not at all, more where the words begin the name. */
export function score(text, wanted) {
  const [name, parts] = [text.toLowerCase(), wanted.toLowerCase().split(/\s+/).filter(Boolean)];
  let sum = 1;
  for (const part of parts) {
    const place = name.indexOf(part);
    if (place < 0) return 0;
    sum += place === 0 || /[^a-z0-9]/.test(name[place - 1]) ? 2 : 1;
  }
  return sum + 1 / (1 + name.length);
}

export function Palette({ pages, onClose }) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const input = useRef(null);
  useEffect(() => input.current.focus(), []);
  const all = [
    ...pages.map(([id, name]) => ({ name, note: "Page", icon: id, href: link(id) })),
    ...(catalog.state.data?.list || []).filter((object) => !object.system).map((object) => ({
      name: object.name, note: `${object.schema_name} · ${kindName(object.type)}`, icon: object.type, href: objectLink(object),
    })),
  ];
  const found = all
    .map((item) => [score(item.name, text), item])
    .filter(([fits]) => fits > 0)
    .sort((a, b) => b[0] - a[0])
    .slice(0, MOST)
    .map(([, item]) => item);
  const choose = (item) => {
    onClose();
    location.hash = item.href;
  };
  const keys = (event) => {
    if (event.key === "ArrowDown") setAt(Math.min(found.length - 1, at + 1));
    else if (event.key === "ArrowUp") setAt(Math.max(0, at - 1));
    else if (event.key === "Enter" && found[at]) choose(found[at]);
    else return;
    event.preventDefault();
  };
  return html`<${Dialog} title="Find" kind="palette" onClose=${onClose}>
    <input ref=${input} type="search" placeholder="A page, table, view, source …" aria-label="Find" value=${text}
      onInput=${(e) => { setText(e.target.value); setAt(0); }} onKeyDown=${keys} role="combobox" aria-expanded="true" aria-controls="found" />
    <ul id="found" role="listbox">${found.map((item, i) => html`<li key=${item.href} role="option" aria-selected=${i === at ? "true" : "false"}
      ref=${(element) => i === at && element?.scrollIntoView({ block: "nearest" })} onClick=${() => choose(item)} onMouseMove=${() => at !== i && setAt(i)}>
      <${Icon} name=${item.icon} /><span>${item.name}</span><small>${item.note}</small></li>`)}</ul>
    ${!found.length && html`<div class="none">Nothing has this name.</div>`}
  </${Dialog}>`;
}
