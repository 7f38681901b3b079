// The frame around the pages: navigation, signing in, keys that work everywhere.

import { html, render, useEffect, useState } from "../vendor/htm/preact.js";
import { onSignedOut, signedInAs, signOut, SqlError, Unreachable } from "./api.js";
import { chooseDatabase } from "./databases.js";
import { catalog } from "./catalog.js";
import { useShared } from "./poll.js";
import { link, useRoute } from "./router.js";
import { load, save } from "./storage.js";
import { DatabaseChoice, Dialog, Icon } from "./ui.js";
import { Overview } from "./pages/overview.js";
import { Editor, useRuns } from "./pages/editor.js";
import { Objects } from "./pages/objects.js";
import { Connections } from "./pages/connections.js";
import { Roles } from "./pages/roles.js";
import { Clusters } from "./pages/clusters.js";
import { Sessions } from "./pages/sessions.js";
import { SignIn } from "./pages/sign_in.js";
import { Palette } from "./pages/palette.js";
import { Connect } from "./pages/connect.js";

const PAGES = [
  ["overview", "Overview", Overview],
  ["sql", "SQL", Editor],
  ["objects", "Objects", Objects],
  ["connections", "Connections", Connections],
  ["clusters", "Clusters", Clusters],
  ["sessions", "Sessions", Sessions],
  ["roles", "Roles", Roles],
];
const LETTERS = { o: "overview", s: "sql", b: "objects", n: "connections", c: "clusters", e: "sessions", r: "roles" }; // after g

function nextTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try {
    localStorage.setItem("foreshore.theme", root.dataset.theme);
  } catch {
    return; // the choice lasts as long as the page
  }
}

const typing = (element) => element.closest?.("input, textarea, select, [contenteditable], .CodeMirror, dialog");

function useKeys(open) {
  useEffect(() => {
    let pending = 0;
    const keys = (event) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        open("palette");
      } else if (!event.ctrlKey && !event.metaKey && !event.altKey && !typing(event.target)) {
        const going = performance.now() - pending < 1200;
        pending = 0;
        if (event.key === "?") open("keys");
        else if (event.key === "g") pending = performance.now();
        else if (going) {
          const page = LETTERS[event.key];
          if (page) location.hash = link(page);
        }
      }
    };
    window.addEventListener("keydown", keys);
    return () => window.removeEventListener("keydown", keys);
  }, []);
}

function App() {
  const route = useRoute();
  const { data, error } = useShared(catalog);
  const [signIn, setSignIn] = useState(null);
  const [open, setOpen] = useState(null);
  const [narrow, setNarrow] = useState(load("narrow", false));
  useEffect(() => onSignedOut((message) => setSignIn({ message })), []);
  useKeys(setOpen);
  if (signIn) {
    const done = () => {
      setSignIn(null);
      catalog.refresh();
    };
    return html`<${SignIn} message=${signIn.message} onDone=${done} />`;
  }
  const [, , Shown] = PAGES.find(([id]) => id === route.page) || [];
  const close = () => setOpen(null);
  const fold = () => {
    save("narrow", !narrow);
    setNarrow(!narrow);
  };
  return html`<div class=${"shell" + (narrow ? " narrow" : "")}>
    <a class="skip" href="#main" onClick=${(e) => { e.preventDefault(); document.getElementById("main").focus(); }}>Skip to the page</a>
    <nav class="side" aria-label="Pages">
      <button class="brand ghost" onClick=${fold} title="Fold or unfold the navigation"><img src="icon.svg" alt="" width="24" height="24" /><span>Foreshore</span></button>
      ${PAGES.map(([id, name]) => html`<a key=${id} href=${link(id)} aria-current=${route.page === id ? "page" : null} title=${name}><${Icon} name=${id} /><span>${name}</span></a>`)}
      <div class="rest"></div>
      <button class="ghost" onClick=${() => setOpen("palette")} title="Find (Ctrl K)"><${Icon} name="search" /><span>Find</span><kbd>Ctrl K</kbd></button>
      <button class="ghost" onClick=${() => setOpen("connect")} title="Connect"><${Icon} name="plug" /><span>Connect</span></button>
      <button class="ghost" onClick=${nextTheme} title="Light or dark"><${Icon} name="theme" /><span>Light or dark</span></button>
      <${Who} data=${data} />
    </nav>
    <main id="main" tabindex="-1">
      ${error && !data && html`<${Trouble} error=${error} />`}
      ${error && data && html`<${Trouble} error=${error} />`}
      ${Shown ? html`<${Shown} key=${route.page} route=${route} />` : html`<${NotHere} />`}
    </main>
    ${open === "palette" && html`<${Palette} pages=${PAGES} onClose=${close} />`}
    ${open === "keys" && html`<${Keys} onClose=${close} />`}
    ${open === "connect" && html`<${Connect} here=${data?.here[0]} onClose=${close} />`}
  </div>`;
}

function Who({ data }) {
  const { running } = useRuns();
  if (!data) return null;
  const here = data.here[0];
  return html`<div class="who" title=${here.version}>
    <${Icon} name="sessions" /><span><b>${here.role}</b><${DatabaseChoice} data=${data} disabled=${running !== null} onChoose=${chooseDatabase} /></span>
    ${signedInAs() && html`<button class="ghost small" title="Sign out" aria-label="Sign out" onClick=${() => signOut("")}><${Icon} name="out" size="14" /></button>`}
  </div>`;
}

function Trouble({ error }) {
  const what = error instanceof Unreachable ? "The server cannot be reached" : error instanceof SqlError ? "The server refuses" : "Something went wrong";
  return html`<div class="banner" role="alert"><strong>${what}</strong> (${error.message.replace(/\.$/, "")}). What is shown is from before; trying again.</div>`;
}

function NotHere() {
  useEffect(() => {
    document.title = "No such page · Foreshore";
  }, []);
  return html`<div class="empty"><strong>There is no such page.</strong><p><a href=${link("overview")}>Go to the overview</a></p></div>`;
}

function Keys({ onClose }) {
  const keys = [
    ["Ctrl K", "Find a page or an object"],
    ["g then o, s, b, n, c, e, r", "Go to Overview, SQL, Objects, Connections, Clusters, Sessions, Roles"],
    ["Ctrl Enter", "Run the statements, or those that are selected"],
    ["Ctrl Shift Enter", "Run the statement at the cursor"],
    ["Ctrl .", "Cancel what runs, wherever the focus is"],
    ["Ctrl Space", "Complete a name"],
    ["Shift Alt F", "Put the statements into lines"],
    ["Ctrl /", "Make a line a comment"],
    ["Arrows, Page Up and Down", "Move in a table"],
    ["Shift and arrows, or a click", "Choose a range of a table; Ctrl A chooses all"],
    ["s", "Sort a table by the column: up, down, as it was"],
    ["Enter, Ctrl C", "Show a value of a table, copy it or the range"],
    ["?", "This help"],
  ];
  return html`<${Dialog} title="Keys" onClose=${onClose}>
    <dl class="keys">${keys.map(([key, what]) => html`<dt><kbd>${key}</kbd></dt><dd>${what}</dd>`)}</dl>
  </${Dialog}>`;
}

render(html`<${App} />`, document.getElementById("app"));
