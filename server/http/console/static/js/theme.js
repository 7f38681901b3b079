// Sets the colours before the first paint: light, dark, or as the system has them.
"use strict";

(function () {
  let theme = null;
  try {
    theme = localStorage.getItem("foreshore.theme");
  } catch {
    theme = null; // a browser that keeps nothing shows the system's colours
  }
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
})();
