// A chart that is read and zoomed. The mouse or the arrow keys move a cursor, which all charts of a group share; dragging
// or + and - zoom; a double click or 0 shows all.
import {h, svg} from "./text.js";
import {extent, lastAtMost} from "./columns.js";
import {chart} from "./svg.js";

const NEAR = 20, DOTS = 8; // pixels; series

export class Chart {
  // height in CSS pixels. group: a Set of the charts that share a cursor. onCursor(x or null): of this chart alone, after
  // onValues() of each chart of the group. onZoom([low, high] or null). onNear(index or null): of the series at the mouse.
  constructor(parent, {height = 190, label = "", group = new Set(), onCursor, onValues, onZoom, onNear}) {
    Object.assign(this, {parent, height, group, onCursor, onValues, onZoom, onNear, state: null, drawn: null, x: null, from: null, width: 0});
    this.over = svg("svg", {class: "over", "aria-hidden": "true"});
    this.select = h("div", {class: "selected", hidden: true});
    parent.classList.add("plot");
    for (const [name, value] of Object.entries({tabindex: 0, role: "group", "aria-roledescription": "chart", "aria-label": label})) parent.setAttribute(name, value);
    parent.append(this.over, this.select);
    for (const [event, act] of Object.entries({keydown: this.pressed, pointerdown: this.down, pointermove: this.move, pointerup: this.up, pointerleave: this.leave, blur: this.leave, dblclick: () => this.onZoom(null)})) parent.addEventListener(event, act.bind(this));
    this.resizer = new ResizeObserver(() => { if (this.state && parent.clientWidth !== this.width) this.draw(); });
    this.resizer.observe(parent);
    group.add(this);
  }

  // As svg.js: chart() takes it; each of the series also has its steps.
  update(state) {
    this.state = state;
    this.draw();
  }

  draw() {
    this.width = this.parent.clientWidth || 320;
    const drawn = chart(this.state, this.width, this.height);
    if (this.drawn) this.drawn.element.replaceWith(drawn.element); else this.parent.prepend(drawn.element);
    this.drawn = drawn;
    this.point(this.x);
  }

  // The longest series: the cursor stands on its points.
  get longest() { return this.state.series.reduce((a, b) => b.x.length > a.x.length ? b : a, {x: [], step: []}); }

  // The value of series i at the cursor, or before it; null: none.
  valueOf(i) {
    const at = this.x === null ? -1 : lastAtMost(this.state.series[i].x, this.x);
    return at < 0 ? null : this.drawn.shown[i][at];
  }

  get step() {
    const {x, step} = this.longest, at = this.x === null ? -1 : lastAtMost(x, this.x);
    return at < 0 ? null : step[at];
  }

  // Draws the cursor at x.
  point(x) {
    this.x = x;
    const {box, x: scale, y} = this.drawn, at = x === null ? -1 : scale.at(x), n = this.state.series.length;
    this.over.replaceChildren(...(at >= box.left && at <= box.right ? [svg("line", {x1: at, x2: at, y1: box.top, y2: box.bottom}),
      ...(n > DOTS ? [] : this.state.series.map((s, i) => [s, this.valueOf(i)]).filter(([, v]) => Number.isFinite(v)).map(([s, v]) => svg("circle", {cx: at, cy: y.at(v), r: 3.5, fill: s.colour})))] : []));
    this.onValues?.();
  }

  cursor(x) {
    for (const one of this.group) if (one.drawn) one.point(x);
    this.onCursor?.(x);
  }

  // The middle of the plot on the nearest point.
  toIndex(i) {
    const {x} = this.longest;
    if (x.length) this.cursor(x[Math.max(0, Math.min(x.length - 1, i))]);
  }

  focus(i) { this.drawn?.lines.forEach((line, k) => line.setAttribute("opacity", i === null || i === k ? 1 : 0.15)); }

  down(e) {
    if (!this.drawn || e.button !== 0) return;
    this.from = e.offsetX;
    if (e.pointerType !== "touch") this.parent.setPointerCapture(e.pointerId);
  }

  move(e) {
    if (!this.drawn) return;
    const pixel = e.clientX - this.parent.getBoundingClientRect().left, {x} = this.longest, value = this.drawn.x.value(pixel), at = lastAtMost(x, value);
    if (this.from !== null) {
      Object.assign(this.select.style, {left: `${Math.min(this.from, pixel)}px`, width: `${Math.abs(pixel - this.from)}px`, height: `${this.drawn.box.bottom}px`});
      this.select.hidden = Math.abs(pixel - this.from) < 4;
    }
    if (x.length) this.toIndex(at + 1 < x.length && x[at + 1] - value < value - x[at] ? at + 1 : at);
    if (this.onNear) this.near(e.clientY - this.parent.getBoundingClientRect().top);
  }

  near(pixel) {
    let best = null, distance = NEAR;
    for (let i = 0; i < this.state.series.length; i++) {
      const v = this.valueOf(i), d = Number.isFinite(v) && v !== null ? Math.abs(this.drawn.y.at(v) - pixel) : Infinity;
      if (d < distance) { best = i; distance = d; }
    }
    this.onNear(best);
  }

  up(e) {
    const from = this.from, to = e.clientX - this.parent.getBoundingClientRect().left;
    this.from = null;
    this.select.hidden = true;
    if (from !== null && Math.abs(to - from) >= 4) this.onZoom([Math.min(from, to), Math.max(from, to)].map((pixel) => this.drawn.x.value(Math.max(this.drawn.box.left, Math.min(this.drawn.box.right, pixel)))));
  }

  leave() {
    if (!this.drawn || this.from !== null) return;
    this.onNear?.(null);
    this.cursor(null);
  }

  pressed(e) {
    if (!this.drawn || e.ctrlKey || e.metaKey || e.altKey) return;
    const {x} = this.longest, at = this.x === null ? x.length - 1 : lastAtMost(x, this.x), {low, high} = this.drawn.x, middle = this.x ?? (low + high) / 2;
    const zoom = (factor) => {
      const all = this.state.whole || extent(...this.state.series.map((s) => s.x)), range = [Math.max(all[0], middle - (middle - low) * factor), Math.min(all[1], middle + (high - middle) * factor)];
      if (range[1] > range[0]) this.onZoom(factor > 1 && range[0] === all[0] && range[1] === all[1] ? null : range);
    };
    const act = {
      ArrowLeft: () => this.toIndex(at - (e.shiftKey ? 20 : 1)), ArrowRight: () => this.toIndex(at + (e.shiftKey ? 20 : 1)),
      Home: () => this.toIndex(0), End: () => this.toIndex(x.length - 1), "+": () => zoom(0.5), "-": () => zoom(2), "0": () => this.onZoom(null),
    }[e.key];
    if (!act) return;
    e.preventDefault();
    act();
  }

  close() { this.resizer.disconnect(); this.group.delete(this); }
}
