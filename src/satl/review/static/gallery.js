// The gallery: many suggestions of one class at once. Mark what is wrong, accept the rest.
// Nothing that was not on the screen, with its picture, is decided.

import { get, imageUrl, thumbnailUrl, whyNoImage } from "./api.js";
import { byId, element, number, score, word } from "./dom.js";
import { cellKey } from "./queue.js";

const SIZES = [24, 48, 96];
const VALUES = { accept: (one) => one.value, wrong: (one) => -one.value, leave: () => null };
const SIGNS = { accept: "", wrong: "✕", leave: "?" };

export class Gallery {
  // settled: resolves when decisions on their way are stored; send: puts cells into the outbox; end: what to say at the end.
  constructor({ settled, send, failed, end, has_images, images_message }) {
    Object.assign(this, { settled, send, failed, end, has_images, images_message });
    this.view = JSON.parse(localStorage.getItem("satl-gallery") ?? "null") ?? { order: "highest", limit: 48 };
    this.turn = 0;
    this.items = [];
    this.history = [];
    this.watcher = new IntersectionObserver((entries) => this.watch(entries), { root: byId("gallery-scroll"), threshold: [0, 0.25, 0.5, 0.75] });
    this.listen();
  }

  listen() {
    const order = byId("gallery-order"), size = byId("gallery-size");
    size.replaceChildren(...SIZES.map((one) => element("option", { value: one }, String(one))));
    order.value = this.view.order;
    size.value = this.view.limit;
    const change = () => {
      this.view = { order: order.value, limit: Number(size.value) };
      localStorage.setItem("satl-gallery", JSON.stringify(this.view));
      this.restart(this.filters);
    };
    order.addEventListener("change", change);
    size.addEventListener("change", change);
    const tiles = byId("tiles");
    tiles.addEventListener("click", (event) => this.click(event));
    tiles.addEventListener("focusin", ({ target }) => {
      const tile = target.closest(".tile");
      if (tile) this.stand(Number(tile.dataset.at), false);
    });
  }

  // Loading. The page after this one is fetched ahead: it begins where this one ends, whatever is decided meanwhile.

  restart(filters) {
    this.filters = filters;
    this.turn += 1;
    this.items = [];
    this.history = [];
    this.count = null;
    this.ahead = null;
    this.place = null;
    this.open(this.settled().then(() => this.fetch(null)));
  }

  async fetch(place) {
    const after = place && { after_key: place.key, after: place.id };
    const page = await get("/api/gallery", { ...this.filters, ...this.view, ...after });
    if (this.has_images) this.ready = page.items.map((one) => Object.assign(new Image(), { src: thumbnailUrl(one.image) }));
    return page;
  }

  // Show a page that is on its way.
  async open(promise) {
    const { turn } = this;
    this.state = "loading";
    this.items = [];
    this.draw();
    let page;
    try {
      page = await promise;
    } catch (error) {
      if (turn !== this.turn) return;
      this.state = "failed";
      this.failed(error);
      this.draw();
      return;
    }
    if (turn !== this.turn) return;
    if (page.count !== null) [this.count, this.exact] = [page.count, page.exact];
    this.place = page.next;
    this.show(page.items.map((one) => ({ ...one, mark: markOf(one) })));
  }

  show(items) {
    this.items = items;
    this.at = 0;
    this.state = items.length ? "ready" : "end";
    this.ahead = this.place && this.fetch(this.place);
    this.ahead?.catch(() => {}); // told when it is needed
    this.draw();
    // Where the keys are, unless somebody is typing elsewhere.
    if (items.length && !document.activeElement?.closest("input, select, dialog, .filters")) this.stand(0);
  }

  advance() {
    if (!this.place) {
      this.turn += 1;
      this.items = [];
      this.state = "end";
      this.draw();
      return;
    }
    const ahead = this.ahead, place = this.place;
    // A page that could not be fetched ahead is asked for again.
    this.open(ahead.catch(() => this.fetch(place)));
  }

  retry() {
    if (this.state === "failed") this.restart(this.filters);
    else for (const [at, tile] of this.tiles.entries()) if (tile.dataset.picture === "failed") this.load(at);
  }

  // Marks.

  stand(at, focus = true) {
    if (!this.items.length) return;
    const wanted = Math.min(Math.max(at, 0), this.items.length - 1);
    this.tiles[this.at]?.setAttribute("tabindex", "-1");
    this.at = wanted;
    this.tiles[wanted].setAttribute("tabindex", "0");
    if (focus) {
      this.tiles[wanted].focus({ preventScroll: true });
      this.tiles[wanted].scrollIntoView({ block: "nearest" });
    }
  }

  get columns() {
    const rows = [...byId("tiles").children].map((one) => one.offsetTop);
    const next = rows.findIndex((top) => top !== rows[0]);
    return next < 0 ? rows.length : next;
  }

  move(direction) {
    const step = { arrowleft: -1, arrowright: 1, arrowup: -this.columns, arrowdown: this.columns }[direction];
    const to = this.at + step;
    if (to >= 0 && to < this.items.length) this.stand(to);
    else if (direction === "arrowdown") this.stand(this.items.length - 1);
  }

  mark(at, mark) {
    const one = this.items[at];
    if (!one) return;
    one.mark = one.mark === mark ? "accept" : mark;
    this.paint(at);
    this.drawCounts();
  }

  click(event) {
    const tile = event.target.closest(".tile");
    if (event.target.closest(".enlarge")) {
      this.enlarge(Number(event.target.closest("li").dataset.at));
      return;
    }
    if (!tile) return;
    const at = Number(tile.dataset.at), now = this.items[at].mark;
    this.stand(at, false);
    // A finger has no Shift key: it goes on to the third state.
    if (event.pointerType === "touch") this.mark(at, { accept: "wrong", wrong: "leave", leave: "leave" }[now]);
    else this.mark(at, event.shiftKey ? "leave" : "wrong");
  }

  enlarge(at = this.at) {
    const one = this.items[at];
    if (!one || !this.has_images) return;
    byId("large-image").src = imageUrl(one.image);
    byId("large-image").alt = `Image ${one.image}`;
    byId("large-name").textContent = `${one.image}: ${one.label}, suggested ${word(one.value)}, score ${score(one.score)}`;
    byId("large").showModal();
  }

  // Decisions.

  get unseen() { return this.items.filter((one) => !one.seen).length; }

  // The next screen as long as something was not seen, then the decision.
  confirm() {
    if (this.state !== "ready") return;
    const hidden = this.items.findIndex((one) => !one.seen);
    if (hidden >= 0) {
      this.tiles[hidden].scrollIntoView({ block: "start" });
      this.stand(hidden);
      return;
    }
    const chosen = this.items.filter((one) => one.mark !== "leave" && VALUES[one.mark](one) !== one.decided);
    const cells = chosen.map((one) => ({ image: one.image, label: one.label, value: VALUES[one.mark](one), based_on: one.number }));
    if (cells.length && !this.send(cells)) return;
    for (const one of chosen) one.decided = VALUES[one.mark](one);
    this.history.push({ items: this.items, place: this.place, cells });
    if (this.history.length > 20) this.history.shift();
    if (this.count !== null) this.count -= this.filters.state === "open" ? cells.length : 0;
    this.advance();
  }

  // What was taken back is shown again, marked as it was.
  undone(cells) {
    const back = new Set(cells.map(({ image, label }) => cellKey(image, label)));
    const at = this.history.findLastIndex((entry) => entry.cells.some(({ image, label }) => back.has(cellKey(image, label))));
    if (at < 0) {
      this.restart(this.filters);
      return;
    }
    const { items, place } = this.history[at];
    this.history.length = at;
    this.turn += 1;
    this.place = place;
    if (this.count !== null) this.count += this.filters.state === "open" ? cells.length : 0;
    this.show(items);
  }

  // Another tab was quicker with some: all are shown again, those as they are now.
  refused(cells, now) {
    const known = new Map(now.map((cell) => [cellKey(cell.image, cell.label), cell]));
    this.undone(cells);
    for (const one of this.items) {
      const cell = known.get(cellKey(one.image, one.label));
      if (!cell) continue;
      const changed = cell.number !== one.number;
      Object.assign(one, { decided: cell.value, number: cell.number });
      if (changed && cell.value !== null) Object.assign(one, { elsewhere: true, mark: markOf(one) });
    }
    this.draw();
  }

  // Another tab decided one of these: it is shown as it is now, before anything is decided about it here.
  told(one) {
    const at = this.items.indexOf(one);
    if (at < 0) return;
    one.mark = markOf(one);
    this.paint(at);
    this.drawCounts();
  }

  find(image, label) {
    for (const { items } of [this, ...this.history]) {
      const found = items.find((one) => one.image === image && one.label === label);
      if (found) return found;
    }
    return null;
  }

  // Drawing.

  draw() {
    const { items, state } = this, list = byId("tiles");
    const focused = list.contains(document.activeElement);
    this.watcher.disconnect();
    byId("gallery").dataset.state = state;
    byId("gallery-class").textContent = this.filters?.label ?? "";
    list.hidden = state !== "ready";
    const message = byId("gallery-message");
    message.hidden = state === "ready";
    const said = { loading: () => ["Loading …"], failed: () => ["This could not be loaded; it is tried again."], end: this.end, ready: () => [] };
    message.replaceChildren(...said[state]());
    list.replaceChildren(...items.map((one, at) => this.tile(one, at)));
    this.tiles = [...list.querySelectorAll(".tile")];
    byId("gallery-scroll").scrollTop = 0;
    items.forEach((_, at) => {
      this.paint(at);
      this.load(at);
      this.watcher.observe(this.tiles[at]);
    });
    if (focused && items.length) this.stand(this.at);
    this.drawCounts();
  }

  tile(one, at) {
    return element("li", { "data-at": at },
      element("button", { type: "button", class: "tile", "data-at": at, "data-image": one.image, tabindex: at === (this.at ?? 0) ? "0" : "-1" },
        element("span", { class: "picture" }, element("span", { class: "sign", "aria-hidden": "true" })),
        element("span", { class: "foot" }, element("span", { class: "number" }, score(one.score)), element("span", { class: "says" }))),
      this.has_images ? element("button", { type: "button", class: "enlarge", tabindex: "-1", "aria-label": `Enlarge ${one.image}` }, "⤢") : null);
  }

  load(at) {
    const one = this.items[at], tile = this.tiles[at], place = tile.querySelector(".picture");
    place.querySelector("img, .missing")?.remove();
    const say = (text) => {
      tile.dataset.picture = "failed";
      place.prepend(element("span", { class: "missing" }, text));
      this.mayBeSeen(at, one);
    };
    if (!this.has_images) {
      say(one.image);
      return;
    }
    tile.dataset.picture = "loading";
    const image = element("img", { alt: "", loading: "lazy", decoding: "async", draggable: "false" });
    image.addEventListener("load", () => {
      tile.dataset.picture = "ready";
      this.mayBeSeen(at, one);
    });
    image.addEventListener("error", () => {
      image.remove();
      say("No picture");
      whyNoImage(one.image).then((why) => { tile.title = why; });
    });
    image.src = thumbnailUrl(one.image);
    place.prepend(image);
  }

  watch(entries) {
    for (const { target, intersectionRatio, intersectionRect, rootBounds } of entries) {
      // Most of it; on a very low screen, as much as there is room for.
      target.dataset.visible = intersectionRatio >= 0.75 || intersectionRect.height >= 0.7 * (rootBounds?.height ?? Infinity);
      const at = Number(target.dataset.at);
      this.mayBeSeen(at, this.items[at]);
    }
  }

  mayBeSeen(at, one) {
    const tile = this.tiles[at];
    if (!one || one.seen || this.items[at] !== one || tile?.dataset.visible !== "true" || tile.dataset.picture === "loading") return;
    one.seen = true;
    this.drawCounts();
  }

  paint(at) {
    const one = this.items[at], tile = this.tiles[at];
    tile.dataset.mark = one.mark;
    tile.querySelector(".sign").textContent = SIGNS[one.mark];
    const value = VALUES[one.mark](one), says = tile.querySelector(".says");
    says.textContent = value === null ? "open" : word(value);
    const others = one.votes.map((vote) => `${vote.annotator || "no name"}: ${word(vote.value)}`).join(", ");
    if (others) tile.title = others;
    const told = { accept: "as suggested", wrong: "marked as wrong", leave: "left open" }[one.mark];
    const known = one.elsewhere ? ", decided in another tab" : one.source === "label-error" ? ", contradicts the table" : "";
    tile.classList.toggle("noted", Boolean(known));
    tile.setAttribute("aria-label", `${one.image}, score ${score(one.score)}, suggested ${word(one.value)}, ${told}${known}`);
    tile.setAttribute("aria-pressed", one.mark !== "accept");
  }

  drawCounts() {
    const of = (mark) => this.items.filter((one) => one.mark === mark).length;
    const ready = this.state === "ready", hidden = ready ? this.unseen : 0;
    const [right, wrong, open] = ["accept", "wrong", "leave"].map(of);
    const left = this.count === null ? "" : `, ${this.exact ? "" : "more than "}${number(this.count)} ${this.filters.state === "open" ? "undecided" : "in all"}`;
    byId("gallery-shown").textContent = ready ? `${number(this.items.length)} shown${left}` : "";
    byId("gallery-confirm").disabled = !ready;
    byId("gallery-confirm").dataset.does = hidden ? "show" : "decide";
    byId("gallery-confirm-text").textContent = hidden ? `Show ${number(hidden)} more` : this.items.length === open ? "Go on" : "Accept the rest";
    const says = [`${number(right)} as suggested`, wrong && `${number(wrong)} wrong`, open && `${number(open)} left open`].filter(Boolean);
    byId("gallery-means").textContent = ready ? says.join(", ") : "";
  }
}

// What was decided before is shown as a mark.
function markOf(one) {
  if (one.decided === null || one.decided === one.value) return "accept";
  return one.decided === 0 ? "leave" : "wrong";
}
