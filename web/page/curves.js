// The curves of a job: a chart for each metric, in groups, and the bar that controls them all.
import {h, numberText, metricText, tabs, clockText} from "./text.js";
import {AXES, colourOf, dashOf, swatch, markIcon} from "./svg.js";
import {Chart} from "./chart.js";
import {extent} from "./columns.js";

const CHARTS = 24, LEGEND = 8;
// Of all the metrics, these come first.
const FIRST = ["loss", "validation_loss", "learning_rate", "grad_norm", "tokens_per_second", "samples_per_second", "mfu", "step_seconds"];
const RANKS = ["memory_bytes", "data_wait_seconds", "data_read_seconds", "communication_wait_seconds", "checkpoint_stall_seconds"];
const MARKS = ["checkpoint", "restart", "pause"], NEAR = 5; // pixels

function groupOf(name) {
  if (name.startsWith("device_")) return "GPUs";
  if (RANKS.includes(name)) return "Ranks";
  const slash = name.indexOf("/");
  return slash > 0 ? name.slice(0, slash) : "Training";
}

const place = (name) => { const i = FIRST.indexOf(name); return i < 0 ? FIRST.length : i; };
const GROUPS = ["Training", "GPUs", "Ranks"];
const placeOfGroup = (name) => { const i = GROUPS.indexOf(name); return i < 0 ? (name < "a" ? 1 : 0.5) : i * 2; };

export class Curves {
  // onStep(step or null): of the step under the cursor.
  constructor(series, onStep) {
    Object.assign(this, {series, onStep, panels: new Map(), groups: new Map(), axis: "step", log: false, smoothing: 0, query: "", range: null, marks: [], ranks: [], charts: new Set()});
    this.element = h("div");
    this.more = h("p", {class: "dim"});
    this.status = h("span", {class: "dim", role: "status"});
    this.reset = h("button", {type: "button", hidden: true, onclick: () => this.zoom(null)}, "Show all");
    this.x = tabs("Horizontal axis", Object.entries(AXES).map(([key, a]) => [key, a.label]), "step", (axis) => { this.axis = axis; this.range = null; this.zoom(null); });
    this.bar = h("div", {class: "bar toolbar"}, this.x,
      h("label", {}, h("input", {type: "checkbox", onchange: (e) => { this.log = e.target.checked; this.draw(); }}), "Log"),
      h("label", {}, "Smoothing", h("input", {type: "range", min: 0, max: 0.98, step: 0.02, value: 0, oninput: (e) => { this.smoothing = Number(e.target.value); this.draw(); }})),
      h("input", {type: "search", placeholder: "Find a metric", "aria-label": "Filter metrics by name", size: 14, oninput: (e) => { this.query = e.target.value.toLowerCase(); this.draw(); }}), this.reset,
      h("span", {class: "fill"}), this.status, h("span", {class: "legend"}, MARKS.map((kind) => h("span", {}, markIcon(kind), kind))));
  }

  // marks: [{step, kind, text}]. ranks: the text of each rank.
  update(marks, ranks) {
    this.marks = marks;
    this.ranks = ranks;
    const tokens = this.x.querySelector('[data-value="tokens"]');
    tokens.disabled = !this.series.tokens;
    tokens.title = this.series.tokens ? "" : "This job does not read tokens";
    this.draw();
  }

  draw() {
    const names = this.series.byName();
    const all = [...names.keys()].filter((n) => n.toLowerCase().includes(this.query)).sort((a, b) => placeOfGroup(groupOf(a)) - placeOfGroup(groupOf(b)) || place(a) - place(b) || (a < b ? -1 : 1));
    const shown = all.slice(0, CHARTS);
    this.more.textContent = all.length > shown.length ? `${all.length - shown.length} more metrics: find them by name.` : "";
    for (const [name, panel] of this.panels) if (!shown.includes(name)) this.remove(name, panel);
    this.whole = extent(...[...names.values()].flat().map((s) => this.series.xOf(s, this.axis))); // the charts have one range
    const drawn = this.marks.map((m) => ({...m, x: this.series.xAt(m.step, this.axis)}));
    for (const name of shown) this.show(name, names.get(name), drawn);
    for (const [name, group] of this.groups) group.hidden = !group.querySelector(".chart");
    if (!this.element.contains(this.more)) this.element.append(this.more);
  }

  group(name) {
    if (!this.groups.has(name)) {
      const grid = h("div", {class: "charts"}), section = h("section", {"aria-label": name}, h("h2", {class: "group"}, name), grid);
      section.grid = grid;
      section.place = placeOfGroup(name);
      this.groups.set(name, section);
      const next = [...this.groups.values()].filter((g) => g.place > section.place && g.parentNode).sort((a, b) => a.place - b.place)[0];
      this.element.insertBefore(section, next || null);
    }
    return this.groups.get(name);
  }

  show(name, series, marks) {
    let panel = this.panels.get(name);
    if (!panel) {
      const value = h("output"), box = h("div"), legend = h("div", {class: "legend"});
      const section = h("section", {class: "panel chart"}, h("h3", {}, h("span", {title: name}, name), value), box, legend);
      section.place = place(name);
      section.name = name;
      const grid = this.group(groupOf(name)).grid;
      const next = [...grid.children].find((c) => c.place > section.place || (c.place === section.place && c.name > name));
      grid.insertBefore(section, next || null);
      panel = {section, value, legend, text: metricText(name), chart: new Chart(box, {label: name, group: this.charts, onValues: () => this.values(panel), onCursor: () => this.cursor(panel.chart), onZoom: (range) => this.zoom(range)})};
      this.panels.set(name, panel);
    }
    const lines = series.map((s, i) => {
      const x = this.series.xOf(s, this.axis), known = x.every(Number.isFinite) ? null : x.map(Number.isFinite);
      const keep = (column) => known ? column.filter((v, k) => known[k]) : column;
      return {label: this.ranks[s.rank] || `rank ${s.rank}`, x: keep(x), step: keep(s.step), mean: keep(s.mean), min: keep(s.min), max: keep(s.max), colour: colourOf(i), dash: dashOf(i), last: s.last};
    });
    panel.lines = lines;
    panel.legend.hidden = lines.length < 2;
    panel.chart.update({title: `${name}, last ${panel.text(Number(lines[0].last))}`, series: lines, marks, axis: this.axis, log: this.log, smoothing: this.smoothing, range: this.range || this.whole, whole: this.whole, yText: panel.text});
  }

  // Values under the cursor, or the last ones.
  values(panel) {
    const n = panel.lines.length, text = (i) => {
      const v = Number(panel.chart.x === null ? panel.lines[i].last : panel.chart.valueOf(i) ?? NaN);
      return Number.isFinite(v) ? panel.text(v) : "";
    };
    panel.value.textContent = n === 1 ? text(0) : "";
    if (n > 1) panel.legend.replaceChildren(...panel.lines.slice(0, LEGEND).map((l, i) => h("span", {}, swatch(i), l.label, " ", text(i))), n > LEGEND ? `${n - LEGEND} more` : "");
  }

  cursor(chart) {
    const step = chart.step, time = step === null ? null : this.series.timeOf(step), at = (x) => chart.drawn.x.at(x);
    const near = step === null ? [] : this.marks.filter((m) => Math.abs(at(this.series.xAt(m.step, this.axis)) - at(chart.x)) < NEAR);
    this.status.textContent = step === null ? "" : [`step ${numberText(step)}`, time ? clockText(time * 1000) : "", ...near.slice(0, 2).map((m) => m.text)].filter(Boolean).join(" · ");
    this.onStep(step);
  }

  async zoom(range) {
    this.range = range;
    this.reset.hidden = !range;
    this.draw();
    try {
      await this.series.zoom(range ? range.map((x) => this.series.stepAt(x, this.axis)) : null);
    } catch { return; } // the points that are known stay
    this.draw();
  }

  remove(name, panel) { panel.chart.close(); panel.section.remove(); this.panels.delete(name); }

  close() { for (const [name, panel] of this.panels) this.remove(name, panel); }
}
