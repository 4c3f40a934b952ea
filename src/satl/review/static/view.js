// Draws the state of the page; decides nothing.

import { get, imageUrl, whyNoImage } from "./api.js";
import { chart, describe } from "./chart.js";
import { byId, element, number, plural, score, word } from "./dom.js";

const SHOWN_CLASSES = 400;
const BAND_TITLES = { accepted: "accepted", review: "for review", left: "left" };
const reports = new Map();

async function report(label) {
  if (!reports.has(label)) {
    if (reports.size > 200) reports.clear();
    reports.set(label, get("/api/class", { name: label }).catch(() => { reports.delete(label); return {}; }));
  }
  return reports.get(label);
}

const sign = (value) => (value === 1 ? "✓" : value === -1 ? "✕" : "–");

function verdict(value) {
  return element("span", { class: `verdict ${word(value)}` }, element("i", { "aria-hidden": "true" }, sign(value)), word(value));
}

function chips(title, names, look, more = 0) {
  if (!names.length && !more) return null;
  const list = names.map((name) => element("li", { class: `chip ${look}` }, name));
  if (more) list.push(element("li", { class: "chip more" }, `and ${number(more)} more`));
  return element("div", { class: "known" }, element("h3", {}, title), element("ul", {}, ...list));
}

function knownLabels({ present, absent, absent_count: count }) {
  const parts = [chips("Known present", present, "present"), chips("Known absent", absent, "absent", count - absent.length)].filter(Boolean);
  return parts.length ? parts : [element("p", { class: "note" }, "Nothing else is known about this image.")];
}

const SOURCES = { "label-error": "label error?" };

function facts(suggestion, known) {
  const tags = [element("li", { class: `tag ${suggestion.band}` }, BAND_TITLES[suggestion.band]), element("li", { class: "tag" }, SOURCES[suggestion.source] ?? suggestion.source)];
  const rows = [element("ul", { class: "tags" }, ...tags)];
  if (suggestion.source === "label-error") {
    const says = known.present.includes(suggestion.label) ? "present" : "absent";
    rows.push(element("p", { class: "warning" }, `The table says ${says}; the model contradicts it.`));
  }
  return rows;
}

function measures(suggestion) {
  const { threshold, bound, value, source } = suggestion;
  const entries = [["score", score(suggestion.score)]];
  // Thresholds are for unknown cells; one that is known and looks wrong was not held against any.
  if (source !== "label-error") entries.push([`threshold (${word(value)})`, threshold === null ? "none" : `${value === 1 ? "≥" : "≤"} ${score(threshold)}`]);
  if (bound !== null) entries.push(["precision at least", `${(100 * bound).toFixed(1)} %`]);
  return element("dl", { class: "measures" }, ...entries.map(([name, text]) => element("div", {}, element("dt", {}, name), element("dd", {}, text))));
}

function detail(suggestion) {
  const place = element("div", { class: "place" });
  report(suggestion.label).then((found) => {
    const figure = chart(found, suggestion);
    if (figure) place.replaceChildren(figure, element("p", { class: "note" }, describe(found, suggestion)));
    else place.replaceChildren(element("p", { class: "note" }, "The report has no score distribution for this class."));
    if (found.shift?.code === "does_not_fit") place.append(element("p", { class: "warning" }, found.shift.verdict));
    // Else a score beyond the threshold that still asks for a person looks like a mistake.
    const side = found[word(suggestion.value)];
    if (side?.withheld && suggestion.source !== "label-error") place.append(element("p", { class: "note" }, side.reason));
  });
  return place;
}

function decision(suggestion) {
  if (suggestion.decided === null) return null;
  const who = suggestion.elsewhere ? "Decided in another tab" : "Decided";
  const text = suggestion.decided === 0 ? (suggestion.elsewhere ? "Skipped in another tab" : "Skipped") : who;
  return element("p", { class: "decided" }, `${text}${suggestion.decided ? ": " : ""}`, suggestion.decided ? verdict(suggestion.decided) : null);
}

// What others decided: shown to whoever has decided, and to whoever settles a disagreement.
function votes(suggestion, final) {
  if (!suggestion.votes.length) return null;
  const list = suggestion.votes.map(({ annotator, value }) => element("li", {}, element("span", {}, annotator || "no name"), verdict(value)));
  return element("div", { class: "votes" }, element("h3", {}, final ? "The annotators disagree; your decision is final" : "Others"), element("ul", {}, ...list));
}

function single(item, suggestion, final) {
  return [
    ...facts(suggestion, item.known),
    element("h1", {}, suggestion.label),
    element("p", { class: "suggested" }, "Suggested: ", verdict(suggestion.value)),
    decision(suggestion),
    votes(suggestion, final),
    measures(suggestion),
    detail(suggestion),
    ...knownLabels(item.known),
  ].filter(Boolean);
}

function several(item, row, choose, final) {
  const open = item.suggestions.filter((one) => one.decided === null).length;
  const list = item.suggestions.map((one, i) => {
    const state = one.decided === null ? element("span", { class: "verdict open" }, "open") : verdict(one.decided);
    const head = element("button", { type: "button", class: "row", "aria-current": i === row ? "true" : null, onclick: () => choose(i) },
      element("b", {}, one.label), element("span", { class: "proposal" }, `${sign(one.value)} ${word(one.value)}`), element("span", { class: "number" }, score(one.score)), state);
    const body = i === row ? element("div", { class: "opened" }, ...[...facts(one, item.known), votes(one, final), measures(one), detail(one)].filter(Boolean)) : null;
    return element("li", { class: i === row ? "current" : null }, head, body);
  });
  return [
    element("h1", { class: "small" }, `${plural(open, "open suggestion")} of ${number(item.suggestions.length)}`),
    element("ol", { class: "rows" }, ...list),
    ...knownLabels(item.known),
  ];
}

// The card and the buttons for the suggestion at hand; ``queue`` may be at its end.
export function drawCard(queue, { choose, end }) {
  const { item, suggestion } = queue;
  const card = byId("card");
  card.dataset.cell = item ? JSON.stringify([item.image, suggestion.label]) : "";
  card.dataset.state = item ? "ready" : queue.ended ? "end" : "loading";
  for (const id of ["accept", "reject", "skip"]) byId(id).disabled = !item;
  byId("accept-means").textContent = item ? `it is ${word(suggestion.value)}` : "";
  byId("reject-means").textContent = item ? `it is ${word(-suggestion.value)}` : "";
  if (!item) {
    card.replaceChildren(...(queue.ended ? end() : [element("p", { class: "note" }, "Loading …")]));
    return;
  }
  const scrolled = card.scrollTop;
  card.replaceChildren(...(queue.mode === "image" ? several(item, queue.row, choose, queue.final) : single(item, suggestion, queue.final)));
  if (queue.mode === "image") {
    card.scrollTop = scrolled;
    card.querySelector("li.current")?.scrollIntoView({ block: "nearest" });
  } else card.scrollTop = 0;
  byId("status").textContent = `${suggestion.label}: suggested ${word(suggestion.value)}, score ${score(suggestion.score)}, image ${item.image}`;
}

let shownImage = null;

export function forgetImage() { shownImage = null; }

export function drawImage(item, zoom, start) {
  const image = byId("image"), missing = byId("no-image");
  byId("image-name").textContent = item ? item.image : "";
  if (item?.image === shownImage) return;
  shownImage = item?.image ?? null;
  zoom.reset();
  image.hidden = true;
  missing.hidden = true;
  image.onload = null;
  image.onerror = null;
  image.removeAttribute("src");
  if (!item) return;
  const name = item.image;
  const say = (text) => {
    if (shownImage !== name) return;
    missing.textContent = text;
    missing.hidden = false;
  };
  if (!start.has_images) {
    say(`${start.images_message} Start satl review with --images DIR to see the images.`);
    return;
  }
  // Never the last image under the next suggestion: it appears when it is the right one.
  image.onload = () => { image.hidden = shownImage !== name; };
  image.onerror = () => { whyNoImage(name).then(say); };
  image.alt = `Image ${name}`;
  image.src = imageUrl(name);
}

// Sums over the chosen bands of [open, present, absent, skipped].
export function sums(tally, bands, all) {
  const result = [0, 0, 0, 0];
  all.forEach((band, i) => { if (bands.includes(band)) tally[i].forEach((count, j) => { result[j] += count; }); });
  return result;
}

function fillBar(bar, counts) {
  const total = Math.max(1, counts.reduce((sum, count) => sum + count, 0));
  bar.replaceChildren(...["present", "absent", "skipped"].map((look, i) => {
    const part = element("i", { class: look });
    part.style.width = `${(100 * counts[i + 1]) / total}%`;
    return part;
  }));
}

export function drawProgress(start, filters) {
  const overall = [0, 0, 0, 0];
  for (const { tally } of start.classes) sums(tally, filters.band, start.bands).forEach((count, i) => { overall[i] += count; });
  const total = overall.reduce((sum, count) => sum + count, 0), done = total - overall[0];
  const bar = byId("overall-bar");
  bar.setAttribute("aria-valuemax", total);
  bar.setAttribute("aria-valuenow", done);
  bar.setAttribute("aria-valuetext", `${done} of ${total}`);
  fillBar(bar, overall);
  byId("overall-text").textContent = `${number(done)} of ${number(total)} done`;
}

export function drawClasses(start, filters, pick) {
  const find = byId("find-class").value.trim().toLowerCase();
  const entries = start.classes.map(({ name, tally }) => [name, sums(tally, filters.band, start.bands)])
    .filter(([name, counts]) => counts.some(Boolean) && name.toLowerCase().includes(find));
  const row = (name, title, counts) => {
    const done = counts[1] + counts[2] + counts[3], bar = element("span", { class: "bar", "aria-hidden": "true" });
    fillBar(bar, counts);
    return element("li", {}, element("button", { type: "button", class: "class", "aria-current": filters.label === name ? "true" : null, onclick: () => pick(name) },
      element("span", { class: "name" }, title), element("span", { class: "number" }, `${number(done)}/${number(done + counts[0])}`), bar));
  };
  const all = [0, 0, 0, 0];
  for (const [, counts] of entries) counts.forEach((count, i) => { all[i] += count; });
  const rows = entries.slice(0, SHOWN_CLASSES).map(([name, counts]) => row(name, name, counts));
  if (!find) rows.unshift(row("", "All classes", all));
  if (entries.length > SHOWN_CLASSES) rows.push(element("li", { class: "note" }, `and ${number(entries.length - SHOWN_CLASSES)} more: type to find one`));
  if (!entries.length) rows.push(element("li", { class: "note" }, find ? "No class of that name in these bands." : "Nothing in these bands."));
  byId("class-list").replaceChildren(...rows);
}
