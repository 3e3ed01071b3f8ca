// One chart of uPlot: series of one metric over the step, with marks.

const COLOURS = ["#3b7dd8", "#d1603d", "#2f9e6e", "#a04fc9", "#b58900", "#d33682", "#13919b", "#7a8290"];
export const colourOf = (i) => COLOURS[i % COLOURS.length];

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Exponential moving average without a bias at the start. Points that are not finite are left out.
function smooth(values, weight) {
  if (!weight) return values;
  let sum = 0, total = 0;
  return values.map((v) => {
    if (v === null) return null;
    sum = sum * weight + v * (1 - weight);
    total = total * weight + (1 - weight);
    return sum / total;
  });
}

// series: [{label, step, mean}]. Joins them into one table over all steps.
function table(series, options) {
  const steps = [...new Set(series.flatMap((s) => s.step))].sort((a, b) => a - b);
  const index = new Map(steps.map((step, i) => [step, i]));
  return [steps, ...series.map((s) => {
    const column = new Array(steps.length).fill(undefined);
    const values = smooth(s.mean.map((v) => Number.isFinite(v) && (!options.log || v > 0) ? v : null), options.smoothing);
    s.step.forEach((step, i) => { column[index.get(step)] = values[i]; });
    return column;
  })];
}

// marks: [{step, kind}]: restart, checkpoint, pause; kinds differ by dashes, so that colours are not needed.
const DASHES = {restart: [], checkpoint: [2, 4], pause: [8, 4]};

function drawMarks(u, marks) {
  const ctx = u.ctx, {left, top, width, height} = u.bbox;
  ctx.save();
  ctx.strokeStyle = css("--dim");
  for (const mark of marks) {
    const x = Math.round(u.valToPos(mark.step, "x", true));
    if (x < left || x > left + width) continue;
    ctx.setLineDash(DASHES[mark.kind] || []);
    ctx.beginPath();
    ctx.moveTo(x, top);
    ctx.lineTo(x, top + height);
    ctx.stroke();
  }
  ctx.restore();
}

export class Chart {
  // height in CSS pixels. onStep(step or null): the step under the cursor.
  constructor(parent, {height = 200, onStep = null, sync = null} = {}) {
    Object.assign(this, {parent, height, onStep, sync, u: null, key: "", series: [], marks: [], options: {log: false, smoothing: 0}});
    this.resizer = new ResizeObserver(() => this.u?.setSize({width: parent.clientWidth, height}));
    this.resizer.observe(parent);
  }

  update(series, marks, options = this.options) {
    this.series = series.map((s) => ({...s, step: s.step.map(Number), mean: s.mean.map(Number)}));
    this.marks = marks;
    this.options = options;
    const data = table(this.series, options), key = JSON.stringify([series.map((s) => s.label), options.log]);
    if (this.u && key === this.key) { this.u.setData(data, !this.zoomed()); return; }
    this.u?.destroy();
    this.key = key;
    this.u = new uPlot(this.config(), data, this.parent);
  }

  zoomed() {
    const {min, max} = this.u.scales.x, x = this.u.data[0];
    return x.length > 0 && (min > x[0] || max < x[x.length - 1]);
  }

  config() {
    const width = this.series.length > 8 ? 1 : 1.5; // browsers draw lines of one pixel much faster
    const axis = {stroke: css("--dim"), grid: {stroke: css("--line"), width: 1}, ticks: {stroke: css("--line"), width: 1}};
    return {
      width: this.parent.clientWidth, height: this.height,
      scales: {x: {time: false, range: (u, min, max) => min === max ? [0, min || 1] : [min, max]}, y: {distr: this.options.log ? 3 : 1}},
      cursor: {sync: this.sync ? {key: this.sync} : undefined, drag: {x: true, y: false}},
      axes: [axis, {...axis, size: 64}],
      series: [{label: "step"}, ...this.series.map((s, i) => ({label: s.label, stroke: colourOf(s.colour ?? i), width, spanGaps: true, points: {show: s.step.length < 2}}))],
      hooks: {
        draw: [(u) => drawMarks(u, this.marks)],
        setCursor: [(u) => this.onStep?.(u.cursor.idx === null || u.cursor.idx === undefined ? null : u.data[0][u.cursor.idx])],
      },
    };
  }

  close() { this.resizer.disconnect(); this.u?.destroy(); this.u = null; }
}
