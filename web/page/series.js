// The series of a job, kept up to date with few bytes, and what x may be: step, time or tokens.
//
// The first call gets at most POINTS entries of each series. Later ones get the points after the last known step, less
// an overlap for ranks that report late. When that has made a series twice as long, when an attempt has begun (which
// hides steps) and every minute, everything is read again. So a series is bounded however long the page is open.
import {callAll} from "./service.js";
import {lastAtMost} from "./columns.js";

const OVERLAP = 20, AGAIN_MS = 60000;

// A program may report steps in any order.
function sorted(s) {
  if (s.step.every((step, i) => i === 0 || step >= s.step[i - 1])) return s;
  const order = s.step.map((_, i) => i).sort((a, b) => s.step[a] - s.step[b]);
  for (const name of ["step", "mean", "min", "max", "time"]) if (s[name].length) s[name] = order.map((i) => s[name][i]);
  return s;
}

const columns = (s) => sorted({name: s.name, rank: s.rank, points: Number(s.points), last: s.last_value, step: s.step.map(Number), mean: s.mean.map(Number), min: s.min.map(Number), max: s.max.map(Number), time: s.time_us.map((t) => Number(t) / 1e6)});

// New points are joined as the service has joined the others: a curve that is averaged only up to a step would seem to
// become noisy there.
function extend(s, more) {
  s.each ??= Math.max(1, Math.round(s.points / s.step.length));
  s.open ??= s.each;
  for (let i = lastAtMost(more.step, s.step[s.step.length - 1]) + 1; i < more.step.length; i++) {
    const at = s.step.length - 1;
    if (s.open >= s.each) {
      for (const name of ["step", "mean", "min", "max", "time"]) if (more[name].length) s[name].push(more[name][i]);
      s.open = 0;
    } else {
      s.mean[at] += (more.mean[i] - s.mean[at]) / (s.open + 1);
      s.min[at] = Math.min(s.min[at], more.min[i]);
      s.max[at] = Math.max(s.max[at], more.max[i]);
      s.step[at] = more.step[i];
      if (more.time.length) s.time[at] = more.time[i];
    }
    s.open++;
    s.points++;
  }
  s.last = more.last;
}

// Tokens of a step: of a model that reads tokens; 0 of others.
export function tokensOf(spec) {
  const model = Object.values(spec?.model || {}).find((m) => m && typeof m === "object");
  return model?.context ? Number(model.context) * Number(spec.train?.global_batch || 0) : 0;
}

export class JobSeries {
  // names: of the metrics; empty: all. timed: whether the entries have times.
  constructor(name, points, names = [], timed = true) { Object.assign(this, {name, points, names, timed, all: new Map(), attempt: -1, read: 0, last: 0, range: null, zoomed: null}); }

  key(s) { return `${s.name} ${s.rank}`; }

  async update(job) { await updateAll([this], [job]); }

  whole(job) { return job.attempt !== this.attempt || Date.now() - this.read > AGAIN_MS || [...this.all.values()].some((s) => s.step.length > 2 * this.points); }

  query(more) { return {job: this.name, names: this.names, max_points: this.points, with_time: this.timed, ...more}; }

  take(job, whole, series) {
    if (whole) { this.all.clear(); this.attempt = job.attempt; this.read = Date.now(); }
    for (const s of series.map(columns)) {
      const known = this.all.get(this.key(s));
      if (known && !whole) extend(known, s); else this.all.set(this.key(s), s);
      this.last = Math.max(this.last, s.step[s.step.length - 1] || 0);
    }
    this.start = Date.parse(job.start_time || job.create_time) / 1000;
    this.tokens = tokensOf(job.spec);
  }

  // More points of a part of the steps; [low, high] or null.
  async zoom(steps) { await zoomAll([this], [steps]); }

  // By name: [series, by rank].
  byName() {
    const names = new Map();
    for (const [key, known] of this.all) {
      const s = this.zoomed?.get(key) || known;
      if (!names.has(s.name)) names.set(s.name, []);
      names.get(s.name).push({...s, last: known.last});
    }
    return names;
  }

  // The longest series: it says when a step was.
  clock() {
    let best = null;
    for (const s of this.all.values()) if (s.time.length && (!best || s.points > best.points)) best = s;
    return best;
  }

  // Seconds since 1970 when the step was reported; null: unknown.
  timeOf(step) {
    const clock = this.clock(), at = clock ? lastAtMost(clock.step, step) : -1;
    return at >= 0 && clock.time[at] ? clock.time[at] : null;
  }

  xOf(s, axis) {
    if (axis === "time") return s.time.map((t) => t ? t - this.start : NaN);
    return axis === "tokens" ? s.step.map((step) => step * this.tokens) : s.step;
  }

  // The step at x, and x of a step.
  stepAt(x, axis) {
    if (axis === "tokens") return x / this.tokens;
    if (axis === "step") return x;
    const clock = this.clock(), at = clock ? lastAtMost(clock.time, x + this.start) : -1;
    return at < 0 ? 0 : clock.step[at];
  }

  xAt(step, axis) {
    if (axis !== "time") return axis === "tokens" ? step * this.tokens : step;
    const time = this.timeOf(step);
    return time === null ? NaN : time - this.start;
  }

  // Steps per second by the newest quarter of the points; 0: unknown.
  speed() {
    const clock = this.clock();
    if (!clock || clock.step.length < 3) return 0;
    const last = clock.step.length - 1, from = Math.floor(last * 0.75), seconds = clock.time[last] - clock.time[from];
    return seconds > 0 ? (clock.step[last] - clock.step[from]) / seconds : 0;
  }
}

// The same for the series of several jobs, with few calls.
export async function updateAll(all, jobs) {
  const whole = all.map((s, i) => s.whole(jobs[i]));
  const answers = await callAll("MetricService/QueryMetrics", all.map((s, i) => s.query({after_step: whole[i] ? 0 : Math.max(0, s.last - OVERLAP)})));
  all.forEach((s, i) => s.take(jobs[i], whole[i], answers[i].series));
}

export async function zoomAll(all, ranges) {
  all.forEach((s, i) => { s.range = ranges[i]; if (!ranges[i]) s.zoomed = null; });
  const asked = all.map((s, i) => [s, ranges[i]]).filter(([, steps]) => steps);
  const answers = await callAll("MetricService/QueryMetrics", asked.map(([s, [low, high]]) => s.query({after_step: Math.max(0, Math.floor(low) - 2), until_step: Math.ceil(high) + 1})));
  asked.forEach(([s, steps], i) => { if (s.range === steps) s.zoomed = new Map(answers[i].series.map((one) => [s.key(one), columns(one)])); });
}
