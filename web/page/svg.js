// Curves as SVG: small ones for lists, and charts for the page and for saved pages. Colours of text and grid come from
// the style sheet, so that a change of the theme draws nothing again.
import {svg, shortText, numberText, durationText} from "./text.js";
import {extent, lastAtMost, smooth} from "./columns.js";

const COLOURS = ["#3b7dd8", "#d1603d", "#2f9e6e", "#a05fd0", "#b58900", "#d3438c", "#13919b", "#7a8290", "#8f6d3f", "#6b8a1e"];
const DASHES = ["", "7 3", "2 2", "9 3 2 3", "14 4"];
// Fifty series differ by colour and dashes.
export const colourOf = (i) => COLOURS[i % COLOURS.length];
export const dashOf = (i) => DASHES[Math.floor(i / COLOURS.length) % DASHES.length];

const SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800];
// What x may be.
export const AXES = {
  step: {label: "Step", text: shortText},
  time: {label: "Time", text: (s) => s ? durationText(s).replace(/ 0 (s|min|h)$/, "") : "0", ticks: SECONDS},
  tokens: {label: "Tokens", text: shortText},
};

export function swatch(i) {
  return svg("svg", {class: "swatch", viewBox: "0 0 16 10", "aria-hidden": "true"}, svg("line", {x1: 0, x2: 16, y1: 5, y2: 5, stroke: colourOf(i), "stroke-dasharray": dashOf(i)}));
}

export function markIcon(kind) {
  return svg("svg", {class: "icon", viewBox: "0 0 10 10", "aria-hidden": "true"}, kind === "checkpoint" ? svg("path", {class: "mark checkpoint", d: "M5,1 L9,9 H1 z"}) : svg("line", {class: `mark ${kind}`, x1: 5, x2: 5, y1: 0, y2: 10}));
}

// Values from low to high on pixels from a to b.
class Scale {
  constructor([low, high], a, b, log) { Object.assign(this, {low, high, a, b, map: log ? Math.log10 : (v) => v, back: log ? (v) => 10 ** v : (v) => v, log}); }
  at(v) { const l = this.map(this.low); return this.a + (this.b - this.a) * (this.map(v) - l) / (this.map(this.high) - l || 1); }
  value(pixel) { const l = this.map(this.low); return this.back(l + (pixel - this.a) / (this.b - this.a) * (this.map(this.high) - l)); }

  // At most about n round values; `sizes`: of the steps between them.
  ticks(n, sizes) {
    if (this.log && this.high / this.low > 20) {
      const all = [], every = Math.ceil(Math.log10(this.high / this.low) / n);
      for (let e = Math.ceil(Math.log10(this.low)); 10 ** e <= this.high && all.length < 20; e += every) all.push(10 ** e);
      return all;
    }
    const rough = (this.high - this.low) / n, unit = 10 ** Math.floor(Math.log10(rough)), all = [];
    const step = sizes?.find((s) => s >= rough) || [1, 2, 2.5, 5, 10].find((m) => m * unit >= rough * 0.999) * unit;
    for (let i = Math.ceil(this.low / step - 1e-9); i * step <= this.high + step / 1e6 && all.length < 20; i++) all.push(Number((i * step).toPrecision(12)));
    return all;
  }
}

// With space around; from 0 if it is near.
function padded([low, high], log) {
  if (log) return low === high ? [low / 2, high * 2] : [low / (high / low) ** 0.06, high * (high / low) ** 0.06];
  if (low === high) return [low - (Math.abs(low) / 10 || 1), high + (Math.abs(high) / 10 || 1)];
  const space = (high - low) * 0.07;
  return [low >= 0 && low < (high - low) / 6 ? 0 : low - space, high + space];
}

// The points of a polyline; at most four for each pixel: the first, the lowest, the highest and the last of it.
function points(xs, ys, x, y) {
  const all = [];
  const add = (i) => all.push(`${x.at(xs[i]).toFixed(1)},${y.at(ys[i]).toFixed(1)}`);
  const seen = (i) => Number.isFinite(xs[i]) && Number.isFinite(ys[i]) && (!y.log || ys[i] > 0);
  const from = Math.max(0, lastAtMost(xs, x.low)), to = Math.min(xs.length, lastAtMost(xs, x.high) + 2);
  const dense = to - from > 4 * Math.abs(x.b - x.a);
  for (let i = from; i < to; i++) {
    if (!seen(i)) continue;
    if (!dense) { add(i); continue; }
    const pixel = Math.floor(x.at(xs[i]));
    let low = i, high = i, last = i;
    for (let k = i + 1; k < to && Math.floor(x.at(xs[k])) === pixel; k++) {
      if (!seen(k)) continue;
      if (ys[k] < ys[low]) low = k;
      if (ys[k] > ys[high]) high = k;
      last = k;
    }
    for (const k of [...new Set([i, Math.min(low, high), Math.max(low, high), last])]) add(k);
    i = last;
  }
  return all;
}

export function sparkline(series) {
  const ys = series.mean.map(Number), xs = ys.map((_, i) => i), all = extent(ys);
  const e = svg("svg", {class: "spark", viewBox: "0 0 90 26", role: "img", "aria-label": `${series.name}: ${numberText(series.last_value)}`});
  if (!all || ys.length < 2) return e;
  const line = points(xs, ys, new Scale([0, ys.length - 1], 1, 89), new Scale(all[0] === all[1] ? padded(all) : all, 23, 3));
  e.append(svg("path", {d: `M1,26 L${line.join(" L")} L89,26 Z`}), svg("polyline", {points: line.join(" ")}));
  return e;
}

function axes(e, box, x, y, state) {
  for (const v of y.ticks(box.height / 36))
    e.append(svg("line", {class: "grid", x1: box.left, x2: box.right, y1: y.at(v), y2: y.at(v)}), svg("text", {class: "axis", x: box.left - 6, y: y.at(v) + 4, "text-anchor": "end"}, state.yText(v)));
  for (const v of x.ticks((box.right - box.left) / 80, AXES[state.axis].ticks)) {
    const at = x.at(v);
    e.append(svg("text", {class: "axis x", x: at, y: box.bottom + 16, "text-anchor": at > box.right - 20 ? "end" : "middle"}, AXES[state.axis].text(v)));
  }
}

function markShape(m, box, x) {
  const at = x.at(m.x);
  return m.kind === "checkpoint" ? svg("path", {class: "mark checkpoint", d: `M${at},${box.bottom - 7} l4,7 h-8 z`}, svg("title", {}, m.text))
    : svg("line", {class: `mark ${m.kind}`, x1: at, x2: at, y1: box.top, y2: box.bottom}, svg("title", {}, m.text));
}

// state: title; series [{label, x, mean, min, max, colour, dash}], x ascending; marks [{x, kind, text}]: checkpoints are
// triangles on the axis, restarts lines, pauses dashed lines; axis: a key of AXES; yText; log; smoothing, 0 to 1; range of
// x, or null. Returns the element, its scales and box, the lines and the values that they show. A single series that
// the service has averaged gets a band from minimum to maximum.
export function chart(state, width, height) {
  const {series, log, smoothing} = state, shown = series.map((s) => smooth(s.mean, smoothing));
  const e = svg("svg", {viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": state.title}), usable = (column) => log ? column.filter((v) => v > 0) : column;
  const xs = state.range || extent(...series.map((s) => s.x)) || [0, 1];
  const inside = (s, column) => state.range ? column.slice(Math.max(0, lastAtMost(s.x, xs[0])), lastAtMost(s.x, xs[1]) + 2) : column;
  const ys = padded(extent(...series.map((s, i) => usable(inside(s, smoothing ? shown[i] : s.mean)))) || [log ? 0.1 : 0, 1], log);
  const y = new Scale(ys, height - 24, 8, log), left = 14 + 6.4 * Math.max(2, ...y.ticks((height - 32) / 36).map((v) => state.yText(v).length));
  const box = {left, right: width - 10, top: 8, bottom: height - 24, height: height - 32}, x = new Scale(xs[0] === xs[1] ? [xs[0] - 0.5, xs[1] + 0.5] : xs, box.left, box.right);
  const line = (s, column, attributes) => svg("polyline", {points: points(s.x, column, x, y).join(" "), fill: "none", stroke: s.colour, "stroke-linejoin": "round", ...attributes});
  axes(e, box, x, y, state);
  const plot = svg("svg", {x: box.left, y: 0, width: box.right - box.left + 1, height: box.bottom + 1, viewBox: `${box.left} 0 ${box.right - box.left + 1} ${box.bottom + 1}`});
  const one = series.length === 1 && !smoothing ? series[0] : null;
  if (one?.min.some((v, i) => v < one.max[i])) {
    const edge = (column) => points(one.x, log ? column.map((v) => Math.max(v, ys[0])) : column, x, y);
    plot.append(svg("polygon", {points: [...edge(one.max), ...edge(one.min).reverse()].join(" "), fill: one.colour, opacity: 0.2}));
  }
  for (const m of state.marks) if (m.x >= x.low && m.x <= x.high) plot.append(markShape(m, box, x));
  if (smoothing) for (const s of series) plot.append(line(s, s.mean, {"stroke-width": 1, opacity: 0.25}));
  const lines = series.map((s, i) => line(s, shown[i], {class: "line", "stroke-width": series.length > 8 ? 1.2 : 1.6, "stroke-dasharray": s.dash || null}));
  plot.append(...lines);
  for (const [i, s] of series.entries()) if (s.x.length <= 24) plot.append(...s.x.map((v, k) => Number.isFinite(shown[i][k]) && (!log || shown[i][k] > 0) ? svg("circle", {cx: x.at(v), cy: y.at(shown[i][k]), r: 2.5, fill: s.colour}) : null).filter(Boolean));
  e.append(plot);
  return {element: e, box, x, y, lines, shown};
}
