// The keyboard: single letters for what the pages' links and switches do. Letters typed into fields stay letters, and
// combinations with Ctrl, Alt or Meta stay the browser's.
(() => {
  "use strict";
  const ROOT = document.querySelector(".brand").pathname;  // the service may stand below a path
  const PLACES = { h: ROOT, q: `${ROOT}queue`, m: `${ROOT}memory`, n: `${ROOT}new` };
  const PAIR_MILLISECONDS = 1200;
  const help = document.getElementById("keys");
  let pending = 0;

  const typing = (target) => target.closest?.("input, select, textarea, [contenteditable]") !== null;

  // A link, whose part of the page is unfolded to show what it does.
  function follow(link) {
    const part = link.closest("details");
    if (part) part.open = true;
    link.click();
  }

  // The link after the chosen one of a group of choices.
  function next(name) {
    const links = [...document.querySelectorAll(`[data-cycle="${name}"] a`)];
    const chosen = links.findIndex((link) => link.hasAttribute("aria-current"));
    if (links.length) follow(links[(chosen + 1) % links.length]);
    return links.length > 0;
  }

  function moveRow(by) {
    const links = [...document.querySelectorAll("main .row-link")].filter((link) => link.checkVisibility());
    if (!links.length) return;
    const place = links.indexOf(document.activeElement);
    const target = links[Math.min(links.length - 1, Math.max(0, place + by))];
    target.focus();
    target.scrollIntoView({ block: "nearest" });
  }

  // The first page has the search; where an address ends in its name, the browser puts the caret into it.
  function search() {
    const field = document.querySelector("input[type=search]");
    if (field) field.focus();
    else if (location.pathname !== ROOT) location.assign(`${ROOT}#search`);
  }

  function press(key) {
    if (pending && Date.now() - pending < PAIR_MILLISECONDS && PLACES[key]) {
      const link = document.querySelector(`nav a[href="${PLACES[key]}"]`); // viewers have none to /new
      link?.click();
      return link !== null;
    }
    pending = key === "g" ? Date.now() : 0;
    if (key === "?") { if (help.open) help.close(); else help.showModal(); return true; }
    if (help.open) return false;
    if (key === "/") { search(); return true; }
    if (key === "t") { document.getElementById("theme").click(); return true; }
    if (key === "j" || key === "k") { moveRow(key === "j" ? 1 : -1); return true; }
    const one = document.querySelector(`[data-key="${CSS.escape(key)}"]`);
    if (one) { follow(one); return true; }
    return next(key);
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || typing(event.target)) return;
    if (event.key.length === 1 && press(event.key)) event.preventDefault();
  });
  document.getElementById("keys-button").hidden = false;
  document.getElementById("keys-button").addEventListener("click", () => help.showModal());
  help.addEventListener("click", (event) => { if (event.target === help) help.close(); });
})();
