// The review page: what a key or a click does, and how the parts hang together.

import { callOthers, get, identity, onCall, Outbox, post, Refused, unique } from "./api.js";
import { byId, element, number, plural, toast, word } from "./dom.js";
import { cellKey, Queue } from "./queue.js";
import { drawCard, drawClasses, drawImage, drawProgress, forgetImage, sums } from "./view.js";
import { Zoom } from "./zoom.js";

const POLL = 2000;
const DEFAULTS = { label: "", band: ["review"], source: "", state: "open", value: "", low: "", high: "" };
const form = byId("filter-form");
const zoom = new Zoom(byId("viewport"), byId("image"));
const pending = new Set();
let start, queue, outbox, seen;
let mode = "class", filters = { ...DEFAULTS };
let acting = Promise.resolve();

function draw() {
  drawCard(queue, { choose: (row) => { queue.choose(row); draw(); }, end });
  drawImage(queue.item, zoom, start);
  drawProgress(start, filters);
  const { count, exact } = queue;
  byId("matching").textContent = count === null ? "" : `${exact ? "" : "more than "}${plural(count, "suggestion")} matched`;
}

function drawSide() {
  drawClasses(start, filters, (label) => { setFilters({ label }); closeFilters(); });
}

// Filters and modes.

function restart() {
  sessionStorage.setItem(`satl-view-${start.id}`, JSON.stringify({ mode, filters }));
  byId("by-class").setAttribute("aria-pressed", mode === "class");
  byId("by-image").setAttribute("aria-pressed", mode === "image");
  queue = newQueue();
  draw();
  drawSide();
  queue.load();
}

function newQueue() {
  const settled = () => outbox.settled();
  return new Queue(mode, filters, { changed: draw, failed: unreachable, settled, pictured: start.has_images });
}

function setFilters(changes) {
  filters = { ...filters, ...changes };
  restart();
}

function setMode(wanted) {
  mode = wanted;
  restart();
}

function readForm() {
  const data = new FormData(form);
  const bands = data.getAll("band");
  if (!bands.length) return; // no band at all would show nothing and say nothing
  setFilters({ band: bands, ...Object.fromEntries(["source", "state", "value", "low", "high"].map((name) => [name, data.get(name)])) });
}

function writeForm() {
  for (const box of form.querySelectorAll("[name=band]")) box.checked = filters.band.includes(box.value);
  for (const name of ["source", "state", "value", "low", "high"]) form.elements[name].value = filters[name];
}

function resetFilters() {
  filters = { ...DEFAULTS };
  byId("find-class").value = "";
  writeForm();
  restart();
}

function openFilters() {
  document.body.classList.add("filtering");
  byId("filters-button").setAttribute("aria-expanded", "true");
  form.querySelector("input, select").focus();
}

function closeFilters() {
  document.body.classList.remove("filtering");
  byId("filters-button").setAttribute("aria-expanded", "false");
  byId("panel").focus({ preventScroll: true });
}

function nextClass() {
  const open = start.classes.filter(({ tally }) => sums(tally, filters.band, start.bands)[0]);
  if (!open.length) return toast("Nothing is open in these bands.");
  const names = start.classes.map(({ name }) => name), here = names.indexOf(filters.label);
  const next = open.find(({ name }) => names.indexOf(name) > here) ?? open[0];
  return setFilters({ label: next.name, state: "open" });
}

function end() {
  const counts = start.classes.map(({ tally }) => sums(tally, filters.band, start.bands));
  const left = counts.reduce((sum, [open]) => sum + open, 0);
  const narrowed = ["source", "value", "low", "high"].some((name) => filters[name] !== "") || filters.state !== "open";
  const parts = [element("h1", {}, filters.state === "open" ? "Nothing left here" : "That is all")];
  const button = (text, action, key = null) => element("button", { type: "button", class: "action", onclick: action },
    element("b", {}, text), key && element("kbd", {}, key));
  if (left) {
    parts.push(element("p", {}, `In the chosen bands, ${plural(left, "suggestion")} ${left === 1 ? "is" : "are"} open.`));
    parts.push(narrowed ? button("Reset the filters", resetFilters) : button("Next class", nextClass, "N"));
  } else if (!counts.flat().some(Boolean)) {
    parts.push(element("p", {}, "There is no suggestion in the chosen bands."));
  } else {
    parts.push(element("p", {}, "Every suggestion in the chosen bands is decided. Write the decisions into your table with"));
    parts.push(element("p", {}, element("code", {}, start.merge_command)));
  }
  return parts;
}

// Decisions. One action after the other, so that a key pressed during an undo acts on what the undo brings back.

function act(action) {
  acting = acting.then(action).catch(unreachable);
}

async function decide(verdictOf, all = false) {
  const { item, suggestion } = queue;
  if (!item) return;
  if (outbox.failing) {
    toast("Wait: the last decision is not stored yet.");
    return;
  }
  const chosen = all && mode === "image" ? item.suggestions.filter((one) => one.decided === null) : [suggestion];
  if (!chosen.length) return;
  if (chosen.some((one) => pending.has(cellKey(item.image, one.label))) && !(await outbox.settled())) return;
  const cells = chosen.map((one) => ({ image: item.image, label: one.label, value: verdictOf(one), based_on: one.number }));
  chosen.forEach((one, i) => {
    pending.add(cellKey(item.image, one.label));
    one.decided = cells[i].value;
    one.elsewhere = false;
  });
  // First, since what comes next may have to be loaded, and would still hold these cells before they are stored.
  outbox.push(cells);
  queue.advance();
  draw();
}

async function undo() {
  if (!(await outbox.settled())) {
    toast("Wait: the last decision is not stored yet.");
    return;
  }
  try {
    const body = await post("/api/undo", { tab: identity.tab, request: unique() });
    if (!body.cells.length) {
      toast("Nothing to undo in this tab.");
      return;
    }
    await queue.show(body.cells[0].image, body.cells[0].label);
    update(body);
    callOthers();
    toast(body.cells.length === 1 ? `Undone: ${body.cells[0].label}` : `Undone: ${plural(body.cells.length, "decision")}`);
  } catch (error) {
    if (!(error instanceof Refused) || error.status !== 409) throw error;
    toast("Another tab has decided this again: it stays as it is.");
    update(error.body);
  }
  draw();
}

// Bring cells and tallies to what the server says; ``last`` is how far it had counted.
function update({ cells, tallies = {}, last }) {
  for (const cell of cells) {
    const found = queue.find(cell.image, cell.label);
    if (found) Object.assign(found, { decided: cell.value, number: cell.number, counted: last ?? found.counted });
  }
  for (const entry of start.classes) entry.tally = tallies[entry.name] ?? entry.tally;
  drawSide();
}

function stored(cells, body) {
  for (const { image, label } of cells) pending.delete(cellKey(image, label));
  update(body);
  if (queue.ended) draw();
  else drawProgress(start, filters);
  callOthers();
}

async function refused(cells, error) {
  for (const { image, label } of cells) pending.delete(cellKey(image, label));
  const [first] = cells;
  if (error.status !== 409) {
    toast(`Not stored: ${error.message}`);
    return;
  }
  update(error.body);
  const found = error.body.cells[0];
  toast(`Another tab decided ${first.label} meanwhile (${found.value === null ? "open again" : word(found.value)}). Look again.`);
  await queue.show(first.image, first.label);
  update(error.body);
  if (queue.suggestion) queue.suggestion.elsewhere = found.value !== null;
  draw();
}

function waiting(count, error) {
  const banner = byId("banner");
  if (!count) {
    backAgain();
    return;
  }
  banner.hidden = false;
  const what = `${plural(count, "decision")} not stored yet. `;
  if (error instanceof Refused) banner.textContent = what + error.message;
  else banner.textContent = `${what}The server does not answer; start satl review again and leave this page open.`;
}

function unreachable(error) {
  const banner = byId("banner");
  banner.textContent = error instanceof Refused ? error.message : "The server does not answer; start satl review again.";
  banner.hidden = false;
}

// What other tabs decide arrives here, at once from this browser and every two seconds from anywhere.

let polling = false;

async function poll() {
  if (polling || document.hidden) return;
  polling = true;
  try {
    let more = true;
    while (more) {
      const news = await get("/api/changes", { since: seen });
      if (news.generation !== start.generation && !outbox.entries.length) location.reload();
      for (const event of news.decisions) applyEvent(event);
      for (const entry of start.classes) entry.tally = news.tallies[entry.name] ?? entry.tally;
      if (news.decisions.length) {
        draw();
        drawSide();
      }
      seen = news.last;
      more = news.more;
    }
    if (!outbox.failing && !byId("banner").hidden) backAgain();
  } catch (error) {
    if (!outbox.failing) unreachable(error);
  } finally {
    polling = false;
  }
}

// The server answers after a time in which it did not: what could not be loaded is asked for again.
function backAgain() {
  byId("banner").hidden = true;
  forgetImage();
  draw();
  if (!queue.item) queue.load();
}

function applyEvent({ image, label, value, number: stands, sequence }) {
  const found = queue.find(image, label);
  if (!found || pending.has(cellKey(image, label)) || sequence <= (found.counted ?? 0)) return;
  if (found.number !== stands) Object.assign(found, { decided: value, number: stands, elsewhere: value !== null });
  found.counted = sequence;
}

// Keys.

const accept = (one) => one.value;
const reject = (one) => -one.value;
const skip = () => 0;
const ACTIONS = {
  a: (event) => act(() => decide(accept, event.shiftKey)),
  r: () => act(() => decide(reject)),
  s: () => act(() => decide(skip)),
  u: () => act(undo),
  z: () => zoom.toggle(),
  m: () => setMode(mode === "class" ? "image" : "class"),
  n: nextClass,
  f: openFilters,
  t: switchTheme,
  "?": () => byId("help").showModal(),
  "+": () => zoom.by(1.4),
  "=": () => zoom.by(1.4),
  "-": () => zoom.by(1 / 1.4),
  0: () => zoom.reset(),
  arrowleft: () => act(() => { queue.step(-1); draw(); }),
  arrowright: () => act(() => { if (queue.item) { queue.step(1); draw(); } }),
  arrowup: () => act(() => { queue.choose(queue.row - 1); draw(); }),
  arrowdown: () => act(() => { queue.choose(queue.row + 1); draw(); }),
};
const HELD = new Set(["+", "=", "-", "arrowleft", "arrowright", "arrowup", "arrowdown"]);

// On a small screen the filters lie over the suggestion.
const covered = () => getComputedStyle(byId("filters")).position === "fixed";

function onKey(event) {
  const typing = event.target.closest("input, select, textarea");
  if (event.key === "Escape" && (covered() || event.target.closest(".filters"))) {
    closeFilters();
    return;
  }
  // A key that is held down, or pressed while the suggestion is covered, must not decide what nobody has seen.
  if (event.repeat && event.key === "Enter" && event.target.closest("button")) event.preventDefault();
  if (typing || byId("help").open || covered()) return;
  // On a keyboard of another alphabet the place of the key counts.
  const letter = event.code.startsWith("Key") && event.key > "\u007f" ? event.code.slice(3) : event.key;
  let name = letter.toLowerCase();
  if ((event.ctrlKey || event.metaKey) && name === "z" && !event.shiftKey) name = "u";
  else if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (!Object.hasOwn(ACTIONS, name)) return;
  event.preventDefault();
  if (!event.repeat || HELD.has(name)) ACTIONS[name](event);
}

function switchTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const next = (document.documentElement.dataset.theme ?? dark) === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  localStorage.setItem("satl-theme", next);
}

function listen() {
  const clicks = {
    accept: "a", reject: "r", skip: "s", undo: "u", "theme-button": "t", "help-button": "?",
    "zoom-in": "+", "zoom-out": "-", "zoom-fit": "0", "filters-button": "f",
  };
  for (const [id, key] of Object.entries(clicks)) byId(id).addEventListener("click", (event) => ACTIONS[key](event));
  byId("by-class").addEventListener("click", () => setMode("class"));
  byId("by-image").addEventListener("click", () => setMode("image"));
  byId("filters-close").addEventListener("click", closeFilters);
  byId("filters").addEventListener("focusout", ({ relatedTarget }) => {
    if (covered() && relatedTarget && !byId("filters").contains(relatedTarget)) closeFilters();
  });
  byId("find-class").addEventListener("input", drawSide);
  form.addEventListener("change", readForm);
  form.addEventListener("submit", (event) => { event.preventDefault(); readForm(); closeFilters(); });
  form.addEventListener("reset", (event) => { event.preventDefault(); resetFilters(); });
  document.addEventListener("keydown", onKey);
  document.addEventListener("visibilitychange", poll);
  addEventListener("beforeunload", (event) => { if (outbox.entries.length) event.preventDefault(); });
  onCall(poll);
  setInterval(poll, POLL);
}

async function begin() {
  start = await get("/api/start");
  seen = start.last;
  byId("folder").textContent = start.folder;
  byId("statement").textContent = start.statement ?? "";
  byId("merge-command").textContent = start.merge_command;
  byId("bands").replaceChildren(...start.bands.map((band) => element("label", { class: "choice" },
    element("input", { type: "checkbox", name: "band", value: band }), band === "review" ? "for review" : band)));
  form.elements.source.append(...start.sources.map((name) => element("option", { value: name }, name)));
  const view = JSON.parse(sessionStorage.getItem(`satl-view-${start.id}`) ?? "null");
  if (view) ({ mode, filters } = view);
  if (!start.classes.some(({ name }) => name === filters.label)) filters.label = "";
  writeForm();
  queue = newQueue();
  outbox = new Outbox(start.id, { stored, refused, waiting });
  restart();
  listen();
  const total = start.classes.reduce((sum, { tally }) => sum + tally.flat().reduce((a, b) => a + b, 0), 0);
  document.title = `satl review: ${number(total)} suggestions`;
}

begin().catch(unreachable);
