// Zoom and pan of the image: keys, wheel, drag, double click, pinch.

const LARGEST = 12;

export class Zoom {
  constructor(viewport, image) {
    this.viewport = viewport;
    this.image = image;
    this.pointers = new Map();
    this.reset();
    viewport.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.by(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0018)), ...this.place(event));
    }, { passive: false });
    viewport.addEventListener("dblclick", (event) => this.toggle(...this.place(event)));
    viewport.addEventListener("pointerdown", (event) => {
      viewport.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, this.place(event));
    });
    viewport.addEventListener("pointermove", (event) => this.move(event));
    for (const end of ["pointerup", "pointercancel"]) {
      viewport.addEventListener(end, (event) => this.pointers.delete(event.pointerId));
    }
  }

  // From the middle of the viewport, in pixels.
  place(event) {
    const box = this.viewport.getBoundingClientRect();
    return [event.clientX - box.left - box.width / 2, event.clientY - box.top - box.height / 2];
  }

  reset() {
    this.scale = 1;
    this.x = 0;
    this.y = 0;
    this.apply();
  }

  toggle(x = 0, y = 0) {
    if (this.scale > 1) this.reset();
    else this.by(2.5, x, y);
  }

  // Scale by a factor so that the point (x, y) stays where it is.
  by(factor, x = 0, y = 0) {
    const scale = Math.min(LARGEST, Math.max(1, this.scale * factor));
    const change = scale / this.scale;
    this.x = x - (x - this.x) * change;
    this.y = y - (y - this.y) * change;
    this.scale = scale;
    this.apply();
  }

  move(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) return;
    const now = this.place(event);
    if (this.pointers.size === 2) {
      const other = [...this.pointers].find(([id]) => id !== event.pointerId)[1];
      const distance = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1]);
      const middle = [(now[0] + other[0]) / 2, (now[1] + other[1]) / 2];
      this.by(distance(now, other) / Math.max(1, distance(before, other)), ...middle);
    } else if (this.scale > 1) {
      this.x += now[0] - before[0];
      this.y += now[1] - before[1];
      this.apply();
    }
    this.pointers.set(event.pointerId, now);
  }

  apply() {
    const reach = (size) => (size * (this.scale - 1)) / 2;
    const { clientWidth, clientHeight } = this.viewport;
    const clamp = (value, limit) => Math.min(limit, Math.max(-limit, value));
    this.x = clamp(this.x, reach(clientWidth));
    this.y = clamp(this.y, reach(clientHeight));
    this.image.style.transform = `translate(${this.x}px, ${this.y}px) scale(${this.scale})`;
    this.viewport.classList.toggle("zoomed", this.scale > 1);
  }
}
