// Draws every [data-figure] from its JSON address: at the start, after each refresh, and when the theme changes; in a
// folded part of the page once that is unfolded.
// Plotly is a megabyte of script: it is loaded once the page's text stands, while the figures' points are on their way.
(() => {
  "use strict";
  const CONFIG = { responsive: true, displayModeBar: false, displaylogo: false, doubleClick: false };
  const SLOW_MILLISECONDS = 5000;  // so often figures that are out of sight follow what happens
  const LIBRARY = document.currentScript.dataset.plotly;
  const PAPER_PIXELS = 680;  // between the margins of an A4 page
  const PHONE = matchMedia("(max-width: 640px)");
  const states = new WeakMap();
  let library = null;
  const ready = [];
  let drawing = false;

  function theme() {
    const chosen = document.documentElement.dataset.theme;
    return chosen ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  }

  const pause = () => new Promise((done) => setTimeout(done));
  // A frame, but never long for it: hidden pages have none.
  const painted = () => new Promise((done) => { requestAnimationFrame(() => setTimeout(done)); setTimeout(done, 300); });

  function plotly() {
    if (window.Plotly) return Promise.resolve();
    library ??= painted().then(() => new Promise((done, failed) => {
      const script = document.createElement("script");
      script.src = LIBRARY;
      script.onload = done;
      script.onerror = () => { library = null; failed(new Error("Plotly was not loaded")); };
      document.head.append(script);
    }));
    return library;
  }

  // What is ready is drawn one after the other, what is in sight first, with a breath between: a click is answered after
  // one figure, not after all of them.
  function inTurn(figure, work) {
    return new Promise((done, failed) => {
      ready.push({ figure, work, done, failed });
      if (!drawing) drawReady();
    });
  }

  async function drawReady() {
    drawing = true;
    while (ready.length) {
      await pause();
      const seen = ready.findIndex(({ figure }) => inSight(figure));
      const [{ work, done, failed }] = ready.splice(Math.max(seen, 0), 1);
      try { done(await work()); } catch (error) { failed(error); }
    }
    drawing = false;
  }

  async function draw(figure) {
    if (figure.closest("details:not([open])")) return;
    const state = states.get(figure) ?? { busy: false, again: false, tag: null };
    states.set(figure, state);
    if (state.busy) { state.again = true; return; }
    state.busy = true;
    try {
      await update(figure, state);
    } catch (error) {
      figure.dataset.failed = String(error);
    } finally {
      state.busy = false;
      if (state.again) { state.again = false; draw(figure); }
    }
  }

  async function update(figure, state) {
    const url = new URL(figure.dataset.figure, location.href);
    url.searchParams.set("theme", theme());
    if (PHONE.matches) url.searchParams.set("narrow", "true");
    const loaded = plotly();
    loaded.catch(() => {});  // is told below, where it is waited for
    const answer = await fetch(url);
    if (!answer.ok) throw new Error(`${answer.status} ${url.pathname}`);
    const etag = answer.headers.get("ETag");
    const tag = etag && url.search + etag; // without a tag it may always be another one
    if (tag && tag === state.tag) return;
    state.picture = await answer.json();
    await loaded;
    await inTurn(figure, () => plot(figure, state));
    state.tag = tag;
    state.drawn = performance.now();
    state.address = figure.dataset.figure;
    figure.dataset.drawn = url.searchParams.get("theme");
    delete figure.dataset.failed;
  }

  // A sentence in place of curves needs little room; when those come the figure grows.
  async function plot(figure, state) {
    const { data, layout } = state.picture;
    const resized = figure.dataset.drawn && figure.hasAttribute("data-empty") === data.length > 0;
    figure.toggleAttribute("data-empty", data.length === 0);
    await Plotly.react(figure, data, zoomed(figure, layout), CONFIG);
    if (resized) await Plotly.Plots.resize(figure);
    if (state.listens) return;
    state.listens = true;
    figure.on("plotly_relayout", (change) => remember(figure, change));
    if (figure.matches(PANEL)) {
      figure.on("plotly_hover", (hover) => { if (hover.event) hoverTogether(figure, hover); });
      figure.on("plotly_unhover", (hover) => { if (hover.event) hoverTogether(figure, null); });
    }
    figure.on("plotly_doubleclick", () => { zooms.delete(figure.id); write(); plot(figure, state); });
  }

  // Panels over the same axis show the same place: what is pointed at in one is named in the others.
  const PANEL = ".panels [data-figure]";
  function hoverTogether(figure, hover) {
    const title = (one) => one.layout?.xaxis?.title?.text;
    for (const other of document.querySelectorAll(PANEL)) {
      if (other === figure || !other.dataset.drawn || title(other) !== title(figure)) continue;
      if (hover) Plotly.Fx.hover(other, { xval: hover.xvals[0] }, "xy"); else Plotly.Fx.unhover(other);
    }
  }

  // What a reader has zoomed into stands in the address, `zoom=curves*x*10*50*y*2.1*2.4`: a link shows it, a refresh keeps
  // it. It holds for one view of a figure; another axis or another part of the curves begins whole again.
  const ZOOM = "zoom";
  let zooms = read();
  for (const id of zooms.keys()) document.getElementById(id).closest("details")?.setAttribute("open", "");

  function read() {
    const found = new Map();
    for (const text of new URLSearchParams(location.search).getAll(ZOOM)) {
      const [name, ...parts] = text.split("*");
      const ranges = new Map();
      for (let place = 0; place + 2 < parts.length; place += 3) {
        const [axis, ...ends] = parts.slice(place, place + 3);
        const range = ends.map((end) => (end.trim() && Number.isFinite(Number(end)) ? Number(end) : end));
        if (/^[xy]\d?$/.test(axis) && range.every((end) => typeof end === "number" || !Number.isNaN(Date.parse(end)))) ranges.set(axis, range);
      }
      const figure = document.getElementById(`figure-${name}`);
      if (figure && ranges.size) found.set(figure.id, { address: null, ranges });
    }
    return found;
  }

  function write() {
    const url = new URL(location.href);
    url.searchParams.delete(ZOOM);
    for (const [id, { ranges }] of zooms) {
      const parts = [...ranges].flatMap(([axis, ends]) => [axis, ...ends.map(short)]);
      url.searchParams.append(ZOOM, [id.replace(/^figure-/, ""), ...parts].join("*"));
    }
    if (url.href !== location.href) history.replaceState(history.state, "", url);
  }

  const short = (end) => (typeof end === "number" ? String(Number(end.toPrecision(6))) : end);
  const axisName = (axis) => `${axis[0]}axis${axis.slice(1)}`;

  function remember(figure, change) {
    const changed = Object.keys(change).map((key) => key.match(/^([xy])axis(\d?)\.(range|autorange)/)).filter(Boolean);
    if (!changed.length) return;
    const ranges = zooms.get(figure.id)?.ranges ?? new Map();
    for (const [, letter, number] of changed) {
      const { range } = figure.layout[axisName(letter + number)];
      ranges.set(letter + number, [...range]);
    }
    zooms.set(figure.id, { address: figure.dataset.figure, ranges });
    write();
  }

  // The layout with the ranges that were zoomed into. Plotly would write into the one that was fetched, and would keep
  // ranges by itself; what it may keep is which traces of the legend are hidden.
  function zoomed(figure, fetched) {
    const layout = structuredClone(fetched);
    layout.uirevision ??= figure.dataset.figure;
    for (const name of Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key))) layout[name].uirevision = false;
    for (const [axis, range] of zooms.get(figure.id)?.ranges ?? []) {
      const found = layout[axisName(axis)];
      if (found && !found.fixedrange) { found.range = [...range]; found.autorange = false; }
    }
    return layout;
  }

  // The page has another view, and perhaps another address: zooms of figures that have not changed come along.
  function reconcile() {
    for (const [id, zoom] of zooms) {
      const address = document.getElementById(id)?.dataset.figure;
      zoom.address ??= address;  // one that came with the address is of the view that came with it
      if (address !== zoom.address) zooms.delete(id);
    }
    write();
  }

  addEventListener("popstate", () => {
    zooms = read();
    every((figure) => { const state = states.get(figure); if (state?.picture) inTurn(figure, () => plot(figure, state)); });
  });

  function inSight(figure) {
    const { top, bottom } = figure.getBoundingClientRect();
    return bottom > -200 && top < innerHeight + 200;
  }

  // What nobody sees need not follow every report at once; another view is drawn at once, wherever it stands.
  function follow(figure) {
    const state = states.get(figure);
    const prompt = !state || state.address !== figure.dataset.figure || inSight(figure);
    const wait = prompt ? 0 : state.drawn + SLOW_MILLISECONDS - performance.now();
    if (wait <= 0) { draw(figure); return; }
    state.later ??= setTimeout(() => { state.later = null; draw(figure); }, wait);
  }

  // Before a page is printed its figures are laid out for paper; the view box lets a smaller sheet shrink them.
  function onPaper(figure) {
    if (!figure.dataset.drawn) return;
    Plotly.relayout(figure, { width: PAPER_PIXELS, autosize: false });
    for (const drawing of figure.querySelectorAll(".main-svg")) {
      drawing.setAttribute("viewBox", `0 0 ${drawing.getAttribute("width")} ${drawing.getAttribute("height")}`);
      drawing.setAttribute("preserveAspectRatio", "xMinYMin meet");
    }
  }

  function onScreen(figure) {
    if (!figure.dataset.drawn) return;
    for (const drawing of figure.querySelectorAll(".main-svg")) drawing.removeAttribute("viewBox");
    Plotly.relayout(figure, { width: null, autosize: true });
  }

  // A panel's settings hold at once; without scripts there is the button.
  document.addEventListener("change", (event) => {
    const form = event.target.closest?.(".panels .panel-form");
    if (form && event.target.matches("select, [type=range], [type=checkbox]")) form.requestSubmit();
  });

  const every = (act) => document.querySelectorAll("[data-figure]").forEach(act);
  document.addEventListener("toggle", ({ target }) => { if (target.open) target.querySelectorAll("[data-figure]").forEach(draw); }, true);
  document.addEventListener("bench:refresh", () => { reconcile(); every(follow); });
  document.addEventListener("bench:theme", () => every(draw));
  PHONE.addEventListener("change", () => every(draw));
  addEventListener("beforeprint", () => every(onPaper));
  addEventListener("afterprint", () => every(onScreen));
  every(draw);
})();
