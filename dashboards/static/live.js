// Keeps a page true: on each event from the server, and on each change of view, it asks for the page's own address again
// and takes over what differs in the regions marked data-live. What a page shows is thus always what the server renders.
(() => {
  "use strict";
  const stream = document.body.dataset.events;
  const badge = document.getElementById("live");
  const WORDS = { live: "Live", waiting: "Reconnecting…", done: "Up to date" };
  let source = null;
  let seen = document.body.dataset.version;
  let busy = false;
  let again = false;
  let polling = false;
  let shown = location.pathname + location.search;

  function show(state) {
    badge.hidden = false;
    badge.dataset.state = state;
    badge.textContent = WORDS[state];
  }

  // Done when the page shows what its address says.
  let refreshed = Promise.resolve();
  function refresh() {
    if (busy) again = true; else refreshed = ask();
    return refreshed;
  }

  async function ask() {
    busy = true;
    shown = location.pathname + location.search;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (answer.redirected) { location.reload(); return; }  // the login has ended
      if (answer.ok) takeOver(new DOMParser().parseFromString(await answer.text(), "text/html"));
    } catch { /* the service is away: the stream reconnects and asks again */ } finally {
      busy = false;
      if (again) { again = false; await refresh(); }
    }
  }

  function takeOver(fresh) {
    document.title = fresh.title;
    seen = fresh.body.dataset.version;
    const selected = new Set([...document.querySelectorAll(".choose input:checked")].map((box) => box.value));
    for (const region of document.querySelectorAll("[data-live]")) {
      const next = fresh.getElementById(region.id);
      if (next) morph(region, next);
    }
    // Rows move: a box goes on being ticked for what it was ticked for.
    for (const box of document.querySelectorAll(".choose input")) box.checked = selected.has(box.value);
    for (const figure of document.querySelectorAll("[data-figure]")) {
      const next = fresh.getElementById(figure.id);
      if (next) figure.dataset.figure = next.dataset.figure;
    }
    document.dispatchEvent(new Event("bench:refresh"));
    poll();
  }

  // Changes only what differs, so that focus, text selection and scroll positions survive.
  function morph(old, next) {
    if (old.isEqualNode(next)) return;
    if (old.nodeName !== next.nodeName || old.nodeType !== Node.ELEMENT_NODE) {
      old.replaceWith(document.importNode(next, true));
      return;
    }
    const theirs = old.nodeName === "DETAILS" ? "open" : "";  // what somebody has unfolded stays so
    for (const { name } of [...old.attributes]) if (name !== theirs && !next.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of next.attributes) if (name !== theirs && old.getAttribute(name) !== value) old.setAttribute(name, value);
    const before = [...old.childNodes];
    const after = [...next.childNodes];
    after.forEach((child, place) => {
      if (place < before.length) morph(before[place], child);
      else old.append(document.importNode(child, true));
    });
    before.slice(after.length).forEach((child) => child.remove());
  }

  function listen() {
    if (!stream || source || document.hidden) return;
    source = new EventSource(`${stream}?since=${seen}`);
    source.addEventListener("open", () => show("live"));
    source.addEventListener("changed", refresh);
    source.addEventListener("done", () => { close(); finished = true; show("done"); });
    source.addEventListener("error", () => { show("waiting"); if (source?.readyState === EventSource.CLOSED) retry(); });
  }

  let finished = false;
  function close() { source?.close(); source = null; }
  function retry() { close(); setTimeout(listen, 3000); }

  // A hidden tab holds no connection: browsers allow six to one server, and people keep many tabs.
  document.addEventListener("visibilitychange", () => {
    if (finished) return;
    if (document.hidden) close(); else listen();
  });
  addEventListener("pagehide", close);

  // The view lives in the address: links marked data-view change it without loading the page anew. They lead on from the
  // view that is shown: a click while another view is on its way waits for it, or would undo the click before.
  document.addEventListener("click", async (event) => {
    const link = event.target.closest?.("a[data-view]");
    if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    while (busy) await refreshed;
    const clean = link.getAttribute("href").replace(/\?$/, "");
    history.pushState(null, "", clean);
    refresh();
  });
  // A link to a place of the page, which shows nothing else, is told by the same event.
  addEventListener("popstate", () => { if (location.pathname + location.search !== shown) refresh(); });
  document.addEventListener("bench:page", (event) => takeOver(event.detail));

  // A region marked data-poll is being prepared: ask again after so many milliseconds. An event may bring such a region.
  function poll() {
    const waiting = document.querySelector("[data-poll]");
    if (!waiting || polling) return;
    polling = true;
    setTimeout(async () => { if (!document.hidden) await refresh(); polling = false; poll(); }, Number(waiting.dataset.poll));
  }

  // A form of choices shows them at once; its button stays for those without scripts.
  document.addEventListener("change", (event) => event.target.closest?.("form[data-auto]")?.requestSubmit());

  listen();
  poll();
})();
