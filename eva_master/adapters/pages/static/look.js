// Light or dark: as the system says, until the reader says otherwise.
"use strict";
(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
  const dark = () => (root.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  const chosen = stored();
  if (chosen === "dark" || chosen === "light") root.dataset.theme = chosen;

  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const name = () => { button.textContent = dark() ? "Light" : "Dark"; };
    button.hidden = false;
    name();
    system.addEventListener("change", name);
    button.addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      try { localStorage.setItem("theme", root.dataset.theme); } catch { /* for this page alone */ }
      name();
    });
    // A list is filtered as soon as a choice is made.
    document.addEventListener("change", (event) => {
      const form = event.target.closest("form[data-instant]");
      if (form) form.requestSubmit();
    });
    // A log stays at its end while its reader is there.
    const follow = () => {
      for (const log of document.querySelectorAll("pre.log")) {
        if (log.dataset.left !== "yes") log.scrollTop = log.scrollHeight;
      }
    };
    document.addEventListener("scroll", (event) => {
      const log = event.target;
      if (log.nodeName !== "PRE") return;
      log.dataset.left = log.scrollTop + log.clientHeight < log.scrollHeight - 24 ? "yes" : "no";
    }, true);
    document.addEventListener("eva:changed", follow);
    follow();
  });
})();
