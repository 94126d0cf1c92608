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
      if (mine !== newest) return;
      const fresh = new DOMParser().parseFromString(text, "text/html");
      if (!fresh.getElementById("preview")) return unchecked(refusal(answer.status, text));
      document.dispatchEvent(new CustomEvent("bench:page", { detail: fresh }));
      form.dataset.checked = String(mine);
    } catch { if (mine === newest) unchecked("The service cannot be reached."); }
  }

  // Why there is no page: the problem's own sentence, where the service or what stands before it has sent one.
  function refusal(status, text) {
    let told = `The service answered with ${status}.`;
    try { told = JSON.parse(text).detail ?? told; } catch { /* not a problem of ours */ }
    return status === 413 ? `${told} adapm-bench submit sends the same in fewer bytes.` : told;
  }

  // In the place of what was found before, which is no longer true of what is written; the next page takes it over.
  function unchecked(why) {
    const made = (name, looks, ...inside) => {
      const element = document.createElement(name);
      element.className = looks;
      element.append(...inside);
      return element;
    };
    const head = made("header", "card-head", made("h2", "", "Check"), made("span", "chip warn", "not checked"));
    document.getElementById("preview").replaceChildren(head, made("p", "empty-note bad-text", why));
  }

  // What candidates keep in memory is unknown until the planner has counted the model, once; then the check knows it.
  const POLL_MILLISECONDS = 1200;
  const POLLS = 50;
  const counted = new Set();
  async function count() {
    const planner = document.querySelector("#preview [data-counts]")?.href;
    if (!planner || counted.has(planner)) return;
    counted.add(planner);
    for (let polls = 0; polls < POLLS; polls++) {
      const answer = await fetch(planner);
      if (!(await answer.text()).includes("data-poll")) return check();
      await new Promise((wake) => setTimeout(wake, POLL_MILLISECONDS));
    }
  }
  const countUnlessAway = () => count().catch(() => { /* the service is away: the link still leads there */ });
  document.addEventListener("bench:page", countUnlessAway);
  countUnlessAway();

  // Which fields are faulty; their values stay as they are written.
  document.addEventListener("bench:page", ({ detail: fresh }) => {
    for (const field of form.querySelectorAll("input[id], select[id], textarea[id]")) {
      const invalid = fresh.getElementById(field.id)?.getAttribute("aria-invalid");
      if (invalid) field.setAttribute("aria-invalid", invalid); else field.removeAttribute("aria-invalid");
    }
  });

  // A fault leads to its field, in YAML to its line.
  const text = form.querySelector("textarea");
  form.addEventListener("click", (event) => {
    const link = event.target.closest?.('a[href^="#"]');
    const field = link && document.getElementById(link.hash.slice(1));
    if (!field) return;
    event.preventDefault();
    field.closest("details")?.setAttribute("open", "");
    field.scrollIntoView({ block: text ? "nearest" : "center" });
    field.focus({ preventScroll: true });
    if (link.dataset.line) select(Number(link.dataset.line));
  });
  function select(line) {
    const before = text.value.split("\n").slice(0, line - 1);
    const start = before.join("\n").length + (before.length ? 1 : 0);
    const end = text.value.indexOf("\n", start);
    text.setSelectionRange(start, end < 0 ? text.value.length : end);
    text.scrollTop = (before.length - 4) * parseFloat(getComputedStyle(text).lineHeight);
  }

  // A template, or the empty form, asks before it takes the place of what was written.
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[data-replaces]");
    if (!link || !text?.value.trim() || (link.search && text.value === text.defaultValue)) return;
    if (!confirm("This replaces what you wrote. Go on?")) event.preventDefault();
  });

  form.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(check, PAUSE_MILLISECONDS); });
  // A tab indents YAML by two spaces; Escape, then Tab, leaves the field.
  let leaving = false;
  text?.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { leaving = true; return; }
    if (event.key === "Tab" && !event.shiftKey && !leaving) {
      event.preventDefault();
      document.execCommand("insertText", false, "  ");
    }
    leaving = false;
  });
})();
