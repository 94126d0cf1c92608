// Checks the submit form while it is written: posts it as it stands and takes over what the server answers. The server is
// the only judge; this only saves the click on "Check".
(() => {
  "use strict";
  const PAUSE_MILLISECONDS = 350;
  const form = document.querySelector("form[data-check]");
  if (!form) return;
  let timer = null;
  let newest = 0;

  async function check() {
    const mine = ++newest;  // `form.action` would be its buttons of that name
    const body = new URLSearchParams(new FormData(form));
    body.set("action", "check");
    try {
      const answer = await fetch(form.getAttribute("action"), { method: "POST", body });
      const text = await answer.text();
      if (mine !== newest || !answer.headers.get("Content-Type")?.startsWith("text/html")) return;
      const fresh = new DOMParser().parseFromString(text, "text/html");
      document.dispatchEvent(new CustomEvent("bench:page", { detail: fresh }));
      form.dataset.checked = String(mine);
    } catch { /* the service is away: the buttons still ask it */ }
  }

  form.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(check, PAUSE_MILLISECONDS); });
  // A tab indents YAML by two spaces; Escape, then Tab, leaves the field.
  let leaving = false;
  form.querySelector("textarea")?.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { leaving = true; return; }
    if (event.key === "Tab" && !event.shiftKey && !leaving) {
      event.preventDefault();
      document.execCommand("insertText", false, "  ");
    }
    leaving = false;
  });
})();
