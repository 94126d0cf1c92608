// Light or dark: the system's choice until the button is used, then the reader's own, kept in this browser.
// Runs before the first paint, so that no page flashes in the wrong colours.
(() => {
  "use strict";
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
  const keep = (theme) => { try { localStorage.setItem("theme", theme); } catch { /* private mode: this page only */ } };
  const announce = () => document.dispatchEvent(new Event("bench:theme"));
  const current = () => root.dataset.theme ?? (system.matches ? "dark" : "light");

  if (["light", "dark"].includes(stored())) root.dataset.theme = stored();
  system.addEventListener("change", announce);
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    button.hidden = false;
    button.addEventListener("click", () => {
      root.dataset.theme = current() === "dark" ? "light" : "dark";
      keep(root.dataset.theme);
      announce();
    });
  });
})();
