// What there is to look at under the present filters: loaded a little ahead, kept for going back.

import { get, imageUrl } from "./api.js";

const AHEAD = 8, PRELOADED = 4, KEPT = 400;

export const cellKey = (image, label) => `${image}\u0000${label}`;

export const isFinal = (state) => state === "disagreed" || state === "resolved";

// Filters from which a suggestion disappears when it is decided.
export const lasting = (state) => ["open", "unseen", "disagreed"].includes(state);

export class Queue {
  // settled: resolves when decisions on their way are stored, or they would come up again as open.
  constructor(mode, filters, { changed, failed, settled, pictured }) {
    this.mode = mode;
    this.filters = filters;
    this.changed = changed;
    this.failed = failed;
    this.settled = settled;
    this.pictured = pictured;
    this.items = [];
    this.at = 0;
    this.row = 0;
    this.after = 0;
    this.loading = false;
    this.count = null;
    this.exact = true;
    this.pictures = [];
    this.turn = 0;
  }

  get item() { return this.items[this.at] ?? null; }

  get suggestion() { return this.item?.suggestions[this.row] ?? null; }

  get ended() { return this.after === null && this.at >= this.items.length; }

  // Never throws: a page that could not be loaded is asked for again at the next step, or when the server is back.
  async load() {
    if (this.loading || this.after === null) return;
    const { mode, filters, after, turn } = this;
    this.loading = true;
    try {
      await this.settled();
      const page = await get("/api/queue", { mode, ...filters, after });
      if (turn !== this.turn) return;
      // What was decided since the page was asked for, and is loaded already, is not shown twice.
      const here = new Set(this.items.map((item) => this.name(item))), waiting = !this.item;
      this.items.push(...page.items.filter((item) => !here.has(this.name(item))));
      if (waiting) this.firstOpen();
      this.after = page.next;
      if (after === 0) [this.count, this.exact] = [page.count, page.exact];
    } catch (error) {
      this.failed(error);
      return;
    } finally {
      this.loading = false;
      if (turn !== this.turn) this.load();
    }
    this.settle();
    this.changed();
  }

  name(item) {
    return this.mode === "image" ? item.image : cellKey(item.image, item.suggestions[0].label);
  }

  // Stand on a suggestion that is wanted, fetch more in time, and have the next images ready.
  settle() {
    if (this.item) this.row = Math.min(this.row, this.item.suggestions.length - 1);
    if (this.items.length - this.at <= AHEAD && this.after !== null) this.load();
    if (this.at > KEPT) {
      this.items.splice(0, this.at - KEPT);
      this.at = KEPT;
    }
    const near = this.pictured ? this.items.slice(this.at, this.at + PRELOADED + 1) : [];
    const names = new Set(near.map((item) => item.image));
    this.pictures = [...names].map((name) => {
      const picture = this.pictures.find((one) => one.dataset.name === name) ?? new Image();
      if (!picture.src) {
        picture.dataset.name = name;
        picture.src = imageUrl(name);
      }
      return picture;
    });
  }

  // Decisions settle disagreements.
  get final() { return isFinal(this.filters.state); }

  wanted(suggestion) {
    return !lasting(this.filters.state) || suggestion.decided === null;
  }

  // After a decision: the next open suggestion of this image, else the next image or suggestion.
  advance() {
    const rest = this.item?.suggestions.findIndex((one, i) => i > this.row && one.decided === null) ?? -1;
    const any = this.item?.suggestions.findIndex((one) => one.decided === null) ?? -1;
    const open = lasting(this.filters.state);
    if (this.mode === "image" && open && Math.max(rest, any) >= 0) {
      this.row = rest >= 0 ? rest : any;
    } else if (this.mode === "image" && open && this.item?.more) {
      // There is more of this image than was listed: from here on everything is loaded again.
      this.after = this.item.key - 1;
      this.items.length = this.at;
      this.turn += 1;
    } else if (this.mode === "image" && this.item && !open && this.row + 1 < this.item.suggestions.length) {
      this.row += 1;
    } else {
      this.step(1, true);
    }
    this.settle();
  }

  // Go on or back; ``onlyWanted`` passes over what another tab has decided meanwhile.
  step(direction, onlyWanted = false) {
    do this.at += direction;
    while (onlyWanted && this.item && !this.item.suggestions.some((one) => this.wanted(one)));
    this.at = Math.min(Math.max(this.at, 0), this.items.length);
    this.firstOpen();
    this.settle();
  }

  firstOpen() {
    this.row = Math.max(0, this.item?.suggestions.findIndex((one) => one.decided === null) ?? 0);
  }

  choose(row) {
    if (this.item) this.row = Math.min(Math.max(row, 0), this.item.suggestions.length - 1);
  }

  find(image, label) {
    for (const item of this.items) {
      if (item.image === image) {
        const found = item.suggestions.find((one) => one.label === label);
        if (found) return found;
      }
    }
    return null;
  }

  // Stand on a cell again, after an undo or a refusal, fetching it if it is not here.
  async show(image, label) {
    let at = this.items.findIndex((one) => one.image === image && one.suggestions.some((s) => s.label === label));
    if (at < 0) {
      const asked = { image, annotator: this.filters.annotator, final: this.final };
      let item = await get("/api/item", this.mode === "image" ? asked : { ...asked, label });
      if (!item.suggestions.some((one) => one.label === label)) item = await get("/api/item", { ...asked, label });
      at = Math.min(this.at, this.items.length);
      this.items.splice(at, 0, item);
    }
    this.at = at;
    this.row = this.item.suggestions.findIndex((one) => one.label === label);
    this.settle();
  }
}
