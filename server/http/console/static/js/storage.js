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

export function save(name, value) {
  try {
    localStorage.setItem(PREFIX + name, JSON.stringify(value));
    return true;
  } catch {
    return false; // full or forbidden: what was to be kept is kept for this page only
  }
}
