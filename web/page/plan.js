// Views of a plan: memory of a rank by family, the timeline of a step, and the plan compared with the measurement.
import {h, svg, numberText, shortText, bytesText, secondsText, metricText} from "./text.js";
import {colourOf} from "./svg.js";

const part = (title, share, colour) => {
  const e = h("span", {title});
  e.style.width = `${100 * share}%`;
  e.style.background = colour;
  return e;
};

const block = (colour) => {
  const e = h("span", {class: "block"});
  e.style.background = colour;
  return e;
};

const legend = (names) => h("div", {class: "legend"}, names.map(([name, colour]) => h("span", {}, block(colour), name)));

const sum = (families) => families.reduce((bytes, f) => bytes + Number(f.bytes), 0);

// Memory of each stage's largest rank, a bar of its families. On a CPU the memory of the device is the host's.
function memoryBars(plan) {
  const ranks = plan.memory.map((r) => ({...r, parts: plan.device === "cpu" ? r.families.concat(r.host) : r.families}));
  const whole = Math.max(Number(plan.most_bytes), 1), names = [...new Set(ranks.flatMap((r) => r.parts.map((f) => f.name)))];
  const limit = Number(plan.memory_bytes);
  return [h("h3", {}, "Memory of one rank"), ranks.map((rank) => {
    const label = `stage ${rank.stage}: ${rank.parts.map((f) => `${f.name} ${bytesText(f.bytes)}`).join(", ")}`;
    const host = plan.device === "cpu" ? "" : `; of its host ${bytesText(rank.host_bytes)}`;
    return h("div", {}, h("div", {class: "top"}, h("small", {class: "dim"}, plan.memory.length > 1 ? `Stage ${rank.stage}, rank ${rank.rank}: ` : "", bytesText(sum(rank.parts)), limit ? ` of ${bytesText(limit)}` : "", host)),
      h("div", {class: "stack", role: "img", "aria-label": label}, rank.parts.filter((f) => Number(f.bytes)).map((f) => part(`${f.name}: ${bytesText(f.bytes)}`, Number(f.bytes) / whole, colourOf(names.indexOf(f.name))))));
  }), legend(names.filter((n) => ranks.some((r) => r.parts.some((f) => f.name === n && Number(f.bytes)))).map((n) => [n, colourOf(names.indexOf(n))]))];
}

const WORK = {forward: 0, recompute: 6, backward: 1, weight: 2, update: 7};

// A row for each stage, its work from left to right; what is empty is waiting.
function timeline(plan) {
  if (!plan.spans.length) return [];
  const rows = plan.stages.length, height = rows > 16 ? 8 : 20, gap = 2, scale = 1000 / plan.step_seconds;
  const rects = plan.spans.map((s) => svg("rect", {x: (s.begin_seconds * scale).toFixed(2), y: s.stage * (height + gap), width: Math.max(0.4, (s.end_seconds - s.begin_seconds) * scale - (rows > 1 ? 0.6 : 0)).toFixed(2), height, fill: colourOf(WORK[s.work] ?? 7)},
    svg("title", {}, `stage ${s.stage}: ${s.work}${s.micro_batch >= 0 ? ` of micro-batch ${s.micro_batch}` : ""}, ${secondsText(s.end_seconds - s.begin_seconds)}`)));
  const used = Object.keys(WORK).filter((w) => plan.spans.some((s) => s.work === w)), total = rows * (height + gap) - gap;
  const chart = svg("svg", {class: "gantt", viewBox: `0 0 1000 ${total}`, preserveAspectRatio: "none", role: "img", "aria-label": `Timeline of a step of ${secondsText(plan.step_seconds)}: ${plan.stages.map((s) => `stage ${s.stage} computes ${secondsText(s.busy_seconds)}`).join(", ")}`}, rects);
  chart.style.height = `${total}px`;
  return [h("h3", {}, rows > 1 ? "Timeline of a step, a row for each pipeline stage" : "Timeline of a step"), chart,
    h("div", {class: "top legend"}, h("span", {}, "0"), h("span", {}, secondsText(plan.step_seconds))), legend(used.map((w) => [w, colourOf(WORK[w])]))];
}

export function planView(plan) {
  const far = plan.wire.length ? Math.max(...plan.wire.map((w) => Number(w.bytes))) : 0;
  const rows = [["Ranks", `${plan.ranks} = data ${plan.data} × pipeline ${plan.pipeline}, ZeRO ${plan.zero}`], ["Micro-batch", `${plan.micro_batch}, ${plan.micro_batches} in a step`],
    ["Parameters", shortText(Number(plan.parameters))], ["Step", secondsText(plan.step_seconds)], ["Device", plan.device],
    ["Speed", plan.tokens_per_second ? `${shortText(plan.tokens_per_second)} tokens/s` : `${shortText(plan.samples_per_second)} samples/s`],
    ["Sent by a rank per step", far ? bytesText(far) : ""], ["Waiting in the pipeline", plan.stages.length > 1 ? `${(100 * plan.bubble).toFixed(1)}%` : ""], ["Note", plan.note]];
  return [h("dl", {class: "facts"}, rows.filter(([, v]) => v).map(([n, v]) => h("div", {}, h("dt", {}, n), h("dd", {}, v)))), memoryBars(plan), timeline(plan)].flat(3);
}

// The median of the newest half of a series' entries.
function median(s) {
  const values = s.mean.slice(Math.floor(s.mean.length / 2)).filter(Number.isFinite).sort((a, b) => a - b);
  return values.length ? values[values.length >> 1] : NaN;
}

// What was planned beside what was measured. names: the job's series by name.
export function comparison(plan, names) {
  const of = (name) => names.get(name) || [], best = (name, f) => of(name).length ? f(...of(name).map((s) => Math.max(...s.max.filter(Number.isFinite)))) : NaN;
  const rate = plan.tokens_per_second ? "tokens_per_second" : "samples_per_second";
  const rows = [["Time of a step", plan.step_seconds, of("step_seconds").length ? median(of("step_seconds")[0]) : NaN, secondsText],
    [plan.tokens_per_second ? "Tokens per second" : "Samples per second", plan[rate], of(rate).length ? median(of(rate)[0]) : NaN, shortText],
    ["Utilization (mfu)", plan.utilization, of("mfu").length ? median(of("mfu")[0]) : NaN, metricText("mfu")],
    ["Memory of the largest rank", Number(plan.most_bytes), best("memory_bytes", Math.max), bytesText]];
  return h("div", {class: "scroll"}, h("table", {}, h("thead", {}, h("tr", {}, h("td"), ["Planned", "Measured", "Ratio"].map((t) => h("th", {scope: "col", class: "number"}, t)))),
    h("tbody", {}, rows.filter(([, p]) => p).map(([name, p, m, text]) => h("tr", {}, h("th", {scope: "row"}, name), h("td", {class: "number"}, text(p)), h("td", {class: "number"}, Number.isFinite(m) ? text(m) : "–"),
      h("td", {class: "number"}, Number.isFinite(m) && text !== bytesText ? numberText(Number((m / p).toPrecision(3))) : ""))))),
  h("p", {class: "dim"}, h("small", {}, "Time and speed are medians of the newest half of the points. The measured memory is that of the whole process.")));
}
