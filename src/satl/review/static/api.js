// Questions to the server, and the outbox through which every decision goes.

const HEADERS = { "content-type": "application/json", "x-satl-review": "1" };

export class Refused extends Error {
  constructor(status, body) {
    super(body.error ?? `The server answered ${status}.`);
    this.status = status;
    this.body = body;
  }
}

// A server killed while it answers leaves half a body behind a good status: that is no answer, and fails like none.
async function answer(response) {
  if (!response.ok) throw new Refused(response.status, await response.json().catch(() => ({})));
  return response.json();
}

export async function get(path, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== "") query.append(name, one);
    }
  }
  return answer(await fetch(`${path}?${query}`));
}

export async function post(path, body) {
  return answer(await fetch(path, { method: "POST", headers: HEADERS, body: JSON.stringify(body) }));
}

export const imageUrl = (name) => `/image?name=${encodeURIComponent(name)}`;
export const thumbnailUrl = (name) => `/thumbnail?name=${encodeURIComponent(name)}`;

// In words, why an image did not appear: the server says so, or the file came and is none.
export async function whyNoImage(name) {
  const response = await fetch(imageUrl(name)).catch(() => null);
  if (!response) return "The server does not answer.";
  if (response.ok) return `'${name}' cannot be shown: its file is damaged.`;
  return answer(response).catch((refusal) => refusal.message);
}

// A name that no other request or tab has; crypto.randomUUID exists only on loopback and over https.
export function unique() {
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// The name of this tab survives a reload, and so does its undo. Tabs of one browser also call each other here.
export const identity = { tab: sessionStorage.getItem("satl-tab") ?? unique() };
sessionStorage.setItem("satl-tab", identity.tab);
const channel = new BroadcastChannel("satl-review");
let heard = () => {};

// A duplicated tab begins with the name of the first one and gives it up when that one answers.
channel.addEventListener("message", ({ data }) => {
  if (data.claim === identity.tab) channel.postMessage({ taken: identity.tab });
  else if (data.taken === identity.tab) {
    identity.tab = unique();
    sessionStorage.setItem("satl-tab", identity.tab);
  } else if (data.decided) heard();
});
channel.postMessage({ claim: identity.tab });

export const callOthers = () => channel.postMessage({ decided: true });
export const onCall = (listener) => { heard = listener; };

const pause = (milliseconds) => new Promise((resolve) => { setTimeout(resolve, milliseconds); });

// Sends decisions one after the other and again until each is stored. They carry a name of their own, so that one
// which was stored although its answer got lost counts once; they outlive a reload in the tab's own storage.
export class Outbox {
  constructor(store, { stored, refused, waiting }) {
    this.key = `satl-outbox-${store}`;
    this.entries = JSON.parse(sessionStorage.getItem(this.key) ?? "[]");
    this.report = { stored, refused, waiting };
    this.failing = false;
    this.sending = null;
    if (this.entries.length) this.pump();
  }

  // With the name of who decided: it may be another one by the time that the server answers again.
  push(cells, annotator, final) {
    this.entries.push({ tab: identity.tab, request: unique(), cells, annotator, final });
    this.save();
    this.pump();
  }

  // Resolves to true when everything is stored, to false when the server does not answer.
  async settled() {
    while (this.entries.length && !this.failing) await pause(5);
    return !this.entries.length;
  }

  save() {
    sessionStorage.setItem(this.key, JSON.stringify(this.entries));
  }

  async pump() {
    if (this.sending) return;
    this.sending = true;
    let delay = 300;
    while (this.entries.length) {
      const entry = this.entries[0];
      try {
        const body = await post("/api/decide", entry);
        this.done();
        this.report.stored(entry.cells, body);
        delay = 300;
      } catch (error) {
        const final = error instanceof Refused && error.status < 500 && error.status !== 403;
        if (final) {
          this.done();
          this.report.refused(entry.cells, error);
        } else {
          this.failing = true;
          this.report.waiting(this.entries.length, error);
          await pause(delay);
          delay = Math.min(delay * 1.6, 4000);
        }
      }
    }
    this.sending = false;
  }

  done() {
    this.entries.shift();
    this.save();
    if (this.failing) {
      this.failing = false;
      this.report.waiting(0, null);
    }
  }
}
