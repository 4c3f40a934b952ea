// The review page: what a key or a click does, and how the parts hang together.

import { callOthers, get, identity, onCall, Outbox, post, Refused, unique } from "./api.js";
import { byId, element, number, plural, toast, word } from "./dom.js";
import { Gallery } from "./gallery.js";
import { listenToNames, rememberedName } from "./people.js";
import { cellKey, isFinal, lasting, Queue } from "./queue.js";
import { drawCard, drawClasses, drawImage, drawProgress, forgetImage, sums } from "./view.js";
import { Zoom } from "./zoom.js";

const POLL = 2000;
const DEFAULTS = { label: "", band: ["review"], source: "", state: "open", value: "", low: "", high: "" };
const form = byId("filter-form");
const zoom = new Zoom(byId("viewport"), byId("image"));
const pending = new Set();
let start, queue, gallery, outbox, seen, openNames;
let mode = "class", filters = { ...DEFAULTS };
let acting = Promise.resolve();
let chosenBefore = "";
const MODES = ["class", "image", "gallery"];

function draw() {
  if (mode === "gallery") {
    drawProgress(start, filters);
    return;
  }
  drawCard(queue, { choose: (row) => { queue.choose(row); draw(); }, end });
  drawImage(queue.item, zoom, start);
  drawProgress(start, filters);
  const { count, exact } = queue;
  byId("matching").textContent = count === null ? "" : `${exact ? "" : "more than "}${plural(count, "suggestion")} matched`;
}

function drawSide() {
  drawClasses(start, filters, (label) => { setFilters({ label }); closeFilters(); });
  const { disagreements } = start;
  byId("disagreements").hidden = !disagreements;
  byId("disagreements").textContent = `${plural(disagreements, "disagreement")} to settle`;
}

// Filters and modes.

function restart() {
  sessionStorage.setItem(`satl-view-${start.id}`, JSON.stringify({ mode, filters }));
  byId("by-class").setAttribute("aria-pressed", mode === "class");
  byId("by-image").setAttribute("aria-pressed", mode === "image");
  byId("by-gallery").setAttribute("aria-pressed", mode === "gallery");
  document.body.classList.toggle("in-gallery", mode === "gallery");
  byId("gallery").hidden = mode !== "gallery";
  // A gallery is of one class: the first with something open where none is chosen.
  if (mode === "gallery" && !filters.label) filters.label = (withOpen()[0] ?? start.classes[0])?.name ?? "";
  queue = newQueue();
  draw();
  drawSide();
  byId("matching").textContent = "";
  if (mode === "gallery") gallery.restart(asked());
  else queue.load();
}

// What is asked of the server: the filters, and for whom.
const asked = () => ({ ...filters, annotator: start.annotator });

function newQueue() {
  const settled = () => outbox.settled();
  return new Queue(mode, asked(), { changed: draw, failed: unreachable, settled, pictured: start.has_images });
}

function setFilters(changes) {
  filters = { ...filters, ...changes };
  restart();
}

function setMode(wanted) {
  // The gallery had to choose a class; going through all classes goes on with all.
  if (mode === "gallery" && wanted !== "gallery") filters.label = chosenBefore;
  if (mode !== "gallery") chosenBefore = filters.label;
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

const withOpen = () => start.classes.filter(({ tally }) => sums(tally, filters.band, start.bands)[0]);

function nextClass() {
  const open = withOpen();
  if (!open.length) return toast("Nothing is open in these bands.");
  const names = start.classes.map(({ name }) => name), here = names.indexOf(filters.label);
  const next = open.find(({ name }) => names.indexOf(name) > here) ?? open[0];
  return setFilters({ label: next.name, state: "open" });
}

function end() {
  const counts = start.classes.map(({ tally }) => sums(tally, filters.band, start.bands));
  const left = counts.reduce((sum, [open]) => sum + open, 0);
  const narrowed = ["source", "value", "low", "high"].some((name) => filters[name] !== "") || filters.state !== "open";
  const parts = [element("h1", {}, lasting(filters.state) ? "Nothing left here" : "That is all")];
  const here = start.classes.find(({ name }) => name === filters.label);
  const open = mode === "gallery" && here ? sums(here.tally, filters.band, start.bands)[0] : 0;
  const button = (text, action, key = null) => element("button", { type: "button", class: "action", onclick: action },
    element("b", {}, text), key && element("kbd", {}, key));
  if (open && !narrowed) {
    parts[0] = element("h1", {}, "End of this class");
    parts.push(element("p", {}, `${plural(open, "suggestion")} of this class ${open === 1 ? "is" : "are"} still open.`));
    parts.push(button("Look at them", () => gallery.restart(asked())), button("Next class", nextClass, "N"));
  } else if (left) {
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
  send(cells);
  queue.advance();
  draw();
}

function send(cells) {
  if (outbox.failing) {
    toast("Wait: the last decision is not stored yet.");
    return false;
  }
  for (const { image, label } of cells) pending.add(cellKey(image, label));
  outbox.push(cells, start.annotator, isFinal(filters.state));
  return true;
}

async function undo() {
  if (!(await outbox.settled())) {
    toast("Wait: the last decision is not stored yet.");
    return;
  }
  try {
    const body = await post("/api/undo", { tab: identity.tab, request: unique(), annotator: start.annotator });
    if (!body.cells.length) {
      toast("Nothing to undo in this tab.");
      return;
    }
    if (mode !== "gallery") await queue.show(body.cells[0].image, body.cells[0].label);
    update(body);
    if (mode === "gallery" && body.cells[0].label !== filters.label) setFilters({ label: body.cells[0].label });
    else if (mode === "gallery") gallery.undone(body.cells);
    callOthers();
    toast(body.cells.length === 1 ? `Undone: ${body.cells[0].label}` : `Undone: ${plural(body.cells.length, "decision")}`);
  } catch (error) {
    if (!(error instanceof Refused) || error.status !== 409) throw error;
    toast("Another tab has decided this again: it stays as it is.");
    update(error.body);
  }
  draw();
}

const findCell = (image, label) => (mode === "gallery" ? gallery : queue).find(image, label);

// Bring cells and tallies to what the server says; ``last`` is how far it had counted.
function update({ cells, tallies = {}, last }) {
  for (const cell of cells) {
    const found = findCell(cell.image, cell.label);
    if (found) Object.assign(found, { decided: cell.value, number: cell.number, counted: last ?? found.counted });
  }
  for (const entry of start.classes) entry.tally = tallies[entry.name] ?? entry.tally;
  drawSide();
}

function stored(cells, body) {
  for (const { image, label } of cells) pending.delete(cellKey(image, label));
  update(body);
  if (mode !== "gallery" && queue.ended) draw();
  else drawProgress(start, filters);
  if (mode === "gallery" && gallery.state === "end") gallery.draw();
  callOthers();
}

async function refused(cells, error) {
  for (const { image, label } of cells) pending.delete(cellKey(image, label));
  const [first] = cells;
  if (error.status !== 409) {
    toast(`Not stored: ${error.message}`);
    if (mode === "gallery") gallery.restart(asked());
    return;
  }
  if (mode === "gallery") {
    gallery.refused(cells, error.body.cells);
    update(error.body);
    toast("Another tab decided some of these meanwhile, so none was stored. Look again.");
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
      const news = await get("/api/changes", { since: seen, annotator: start.annotator });
      if (news.generation !== start.generation && !outbox.entries.length) location.reload();
      for (const event of news.decisions) applyEvent(event);
      for (const entry of start.classes) entry.tally = news.tallies[entry.name] ?? entry.tally;
      if (news.decisions.length || news.disagreements !== start.disagreements) {
        start.disagreements = news.disagreements;
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
  if (mode === "gallery") {
    gallery.retry();
    return;
  }
  forgetImage();
  draw();
  if (!queue.item) queue.load();
}

function applyEvent({ image, label, value, number: stands, sequence, final }) {
  const found = findCell(image, label);
  if (!found || Boolean(final) !== isFinal(filters.state) || pending.has(cellKey(image, label)) || sequence <= (found.counted ?? 0)) return;
  if (found.number !== stands) {
    Object.assign(found, { decided: value, number: stands, elsewhere: value !== null });
    if (mode === "gallery") gallery.told(found);
  }
  found.counted = sequence;
}

// Keys.

const accept = (one) => one.value;
const reject = (one) => -one.value;
const skip = () => 0;
const GALLERY_ACTIONS = {
  " ": () => gallery.mark(gallery.at, "wrong"),
  r: () => gallery.mark(gallery.at, "wrong"),
  l: () => gallery.mark(gallery.at, "leave"),
  s: () => gallery.mark(gallery.at, "leave"),
  enter: () => act(() => gallery.confirm()),
  z: () => gallery.enlarge(),
  ...Object.fromEntries(["arrowleft", "arrowright", "arrowup", "arrowdown"].map((name) => [name, () => gallery.move(name)])),
};
const IN_GALLERY = new Set(["u", "m", "g", "n", "f", "t", "p", "?"]);
const ACTIONS = {
  a: (event) => act(() => decide(accept, event.shiftKey)),
  r: () => act(() => decide(reject)),
  s: () => act(() => decide(skip)),
  u: () => act(undo),
  z: () => zoom.toggle(),
  m: () => setMode(MODES[(MODES.indexOf(mode) + 1) % MODES.length]),
  g: () => setMode(mode === "gallery" ? "class" : "gallery"),
  p: () => openNames(),
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
  if (typing || document.querySelector("dialog[open]") || covered()) return;
  // On a keyboard of another alphabet the place of the key counts.
  const letter = event.code.startsWith("Key") && event.key > "\u007f" ? event.code.slice(3) : event.key;
  let name = letter.toLowerCase();
  if ((event.ctrlKey || event.metaKey) && name === "z" && !event.shiftKey) name = "u";
  else if (event.ctrlKey || event.metaKey || event.altKey) return;
  let actions = ACTIONS;
  if (mode === "gallery" && !IN_GALLERY.has(name)) {
    // Enter and Space belong to a button that has the focus, unless it is a picture.
    if ((name === "enter" || name === " ") && event.target.closest("button:not(.tile), a, summary")) return;
    if (name === " " && event.shiftKey) name = "l";
    actions = GALLERY_ACTIONS;
  }
  if (!Object.hasOwn(actions, name)) return;
  event.preventDefault();
  if (!event.repeat || HELD.has(name)) actions[name](event);
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
  byId("by-gallery").addEventListener("click", () => setMode("gallery"));
  byId("gallery-confirm").addEventListener("click", () => act(() => gallery.confirm()));
  byId("gallery-undo").addEventListener("click", () => act(undo));
  byId("disagreements").addEventListener("click", () => {
    filters = { ...DEFAULTS, band: start.bands, state: "disagreed" };
    mode = "class";
    writeForm();
    restart();
    closeFilters();
  });
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

// A name that the server does not take, from wherever it came, must not lock the page.
const begun = () => get("/api/start", { annotator: rememberedName() })
  .catch((error) => { if (error.status === 422) return get("/api/start"); throw error; });

async function changeName(keep) {
  if (!(await outbox.settled())) {
    toast("Wait: the last decision is not stored yet.");
    return;
  }
  keep();
  location.reload();
}

async function begin() {
  start = await begun();
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
  gallery = new Gallery({
    settled: () => outbox.settled(), send, failed: unreachable, end,
    has_images: start.has_images, images_message: start.images_message,
  });
  outbox = new Outbox(start.id, { stored, refused, waiting });
  openNames = listenToNames(start, { change: changeName, failed: unreachable });
  restart();
  listen();
  const total = start.classes.reduce((sum, { tally }) => sum + tally.flat().reduce((a, b) => a + b, 0), 0);
  document.title = `satl review: ${number(total)} suggestions`;
}

begin().catch(unreachable);
