// What the browser keeps for this page. A browser that keeps nothing (private windows) is no error.

const PREFIX = "foreshore.";

export function load(name, otherwise) {
  try {
    const text = localStorage.getItem(PREFIX + name);
    return text === null ? otherwise : JSON.parse(text);
  } catch {
    return otherwise;
  }
}

/** What this tab keeps, which other tabs have not; else what any has kept last. */
export function loadOfTab(name, otherwise) {
  try {
    const text = sessionStorage.getItem(PREFIX + name);
    return text === null ? load(name, otherwise) : JSON.parse(text);
  } catch {
    return otherwise;
  }
}

/** Keep a value for this tab and, unless it is `own`, for tabs that are opened later. */
export function saveOfTab(name, value, { own = false } = {}) {
  try {
    sessionStorage.setItem(PREFIX + name, JSON.stringify(value));
  } catch {
    return false;
  }
  return own || save(name, value);
}

/** Call `listener` when another tab has kept a value under the name. */
export function onSaved(name, listener) {
  window.addEventListener("storage", (event) => event.key === PREFIX + name && listener());
}

export function save(name, value) {
  try {
    localStorage.setItem(PREFIX + name, JSON.stringify(value));
    return true;
  } catch {
    return false; // full or forbidden: what was to be kept is kept for this page only
  }
}
