// Up to 50 jobs: the curves of one metric in one chart, and a table of the jobs with the fields in which their specs
// differ. The table is the legend too: a row shows, hides and highlights its curve.
import {callAll, poll} from "./service.js";
import {h, idOf, titleOf, numberText, metricText, stateBadge, ended, message, tabs, download} from "./text.js";
import {AXES, colourOf, dashOf, swatch} from "./svg.js";
import {Chart} from "./chart.js";
import {JobSeries, tokensOf, updateAll, zoomAll} from "./series.js";
import {comparePage} from "./save.js";

const JOBS = 50, LIVE_MS = 3000, NAMED = 8, FIRST = "loss";

// Every scalar of a message by its path.
function leaves(value, path, into) {
  if (value === null || typeof value !== "object") into.set(path, String(value));
  else if (Array.isArray(value)) into.set(path, JSON.stringify(value));
  else for (const [name, below] of Object.entries(value)) leaves(below, path ? `${path}.${name}` : name, into);
  return into;
}

// Fields in which the specs differ, except for the name.
export function differences(jobs) {
  const specs = jobs.map((job) => leaves(job.spec || {}, "", new Map()));
  const paths = [...new Set(specs.flatMap((s) => [...s.keys()]))].filter((p) => p !== "name").sort();
  return paths.filter((p) => new Set(specs.map((s) => s.get(p) ?? "")).size > 1).map((path) => ({path, values: specs.map((s) => s.get(path) ?? "")}));
}

class Run {
  constructor(job, i) { Object.assign(this, {job, i, colour: i, shown: true, series: null}); }

  // The metric's series of the lowest rank.
  get line() { return this.series?.all.values().next().value; }

  // The same, with more points of the part that is zoomed.
  get shape() { return this.series.byName().values().next().value[0]; }
}

export function showCompare(content, text) {
  const ids = [...new Set(text.split(",").filter(Boolean))].slice(0, JOBS), points = ids.length > 10 ? 500 : 1000;
  const failure = h("div"), box = h("div"), status = h("span", {class: "dim", role: "status"}), scroll = h("div", {class: "scroll"}), reset = h("button", {type: "button", hidden: true, onclick: () => zoom(null)}, "Show all");
  const metric = h("select", {"aria-label": "Metric", onchange: () => load(metric.value).catch(fail)}), field = h("input", {value: ids.join(", "), id: "search", "aria-label": "Jobs", placeholder: "Job numbers: 12, 15, 18", size: 32});
  const axis = tabs("Horizontal axis", Object.entries(AXES).map(([key, a]) => [key, a.label]), "step", () => { unzoom(); load(metric.value).catch(fail); });
  const chart = new Chart(box, {height: 420, label: "Curves of the jobs", onCursor: cursor, onZoom: (range) => zoom(range), onNear: (i) => light(i === null ? null : lines()[i])});
  const options = {log: false, smoothing: 0, range: null};
  let loads = 0, drawn = FIRST, runs = [], fields = [], sorted = {key: "", down: false}, cells = new Map();

  const fail = (e) => failure.replaceChildren(message(e.message));
  const lines = () => runs.filter((r) => r.shown && r.line);

  function draw() {
    const shown = lines();
    box.hidden = !shown.length;
    if (shown.length) chart.update({series: shown.map((r) => {
      const s = r.shape, x = r.series.xOf(s, axis.value);
      return {x, step: s.step, mean: s.mean, min: s.min, max: s.max, colour: colourOf(r.colour), dash: dashOf(r.colour)};
    }).map((s) => s.x.every(Number.isFinite) ? s : {...s, ...Object.fromEntries(["x", "step", "mean", "min", "max"].map((k) => [k, s[k].filter((v, i) => Number.isFinite(s.x[i]))]))}), marks: [], title: `${drawn} of ${shown.length} jobs`, axis: axis.value, ...options, yText: metricText(drawn)});
    for (const r of runs) values(r);
  }

  // Under the cursor, or the last ones.
  function values(r) {
    const c = cells.get(r), s = r.line, at = r.shown && chart.x !== null ? chart.valueOf(lines().indexOf(r)) : null, text = metricText(drawn);
    if (!c) return;
    c.value.textContent = s ? text(Number(at ?? s.last)) : "";
    c.best.textContent = s ? text(Math.min(...s.min.filter(Number.isFinite))) : "";
  }

  function cursor(x) {
    for (const r of lines()) values(r);
    status.textContent = x === null ? "" : axis.value === "step" ? `values at step ${numberText(x)}` : `values at ${AXES[axis.value].text(x)}`;
  }

  // Highlights a job's curve and row; null: none.
  function light(run) {
    for (const [r, c] of cells) c.tr.classList.toggle("focus", r === run);
    chart.focus(run?.shown ? lines().indexOf(run) : null);
  }

  function unzoom() {
    options.range = null;
    reset.hidden = true;
    for (const r of runs) r.series?.zoom(null);
  }

  async function zoom(range) {
    unzoom();
    Object.assign(options, {range});
    reset.hidden = !range;
    draw();
    const all = lines();
    if (range && all.length) await zoomAll(all.map((r) => r.series), all.map((r) => range.map((x) => r.series.stepAt(x, axis.value)))).then(draw, () => {});
  }

  const COLUMNS = [["Job", (r) => titleOf(r.job)], ["State", (r) => r.job.state], ["Step", (r) => Number(r.job.step)], ["Value", (r) => Number(r.line?.last)], ["Lowest", (r) => Math.min(...(r.line?.min || [Infinity]))]];

  function sortBy(key, of) {
    sorted = {key, down: sorted.key === key && !sorted.down};
    const compare = (a, b) => { const x = of(a), y = of(b), n = Number(x) - Number(y); return Number.isNaN(n) ? String(x).localeCompare(String(y)) : n; };
    runs.sort((a, b) => (sorted.down ? -1 : 1) * compare(a, b));
    showTable();
    draw();
  }

  function row(r) {
    const value = h("td", {class: "number"}), best = h("td", {class: "number"});
    const show = h("input", {type: "checkbox", checked: r.shown, "aria-label": `Show ${titleOf(r.job)}`, onchange: (e) => { r.shown = e.target.checked; tr.classList.toggle("off", !r.shown); draw(); }});
    const tr = h("tr", {class: r.shown ? "" : "off", onmouseenter: () => light(r), onmouseleave: () => light(null), onfocusin: () => light(r), onfocusout: () => light(null)}, h("td", {}, show), h("td", {}, swatch(r.colour)),
      h("th", {scope: "row", class: "pin"}, h("a", {href: `#/jobs/${idOf(r.job.name)}`}, titleOf(r.job)), h("span", {class: "dim"}, ` ${idOf(r.job.name)}`)), h("td", {}, stateBadge(r.job.state)), h("td", {class: "number"}, numberText(r.job.step)), value, best, fields.map((f) => h("td", {}, f.values[r.i])));
    cells.set(r, {tr, value, best});
    return tr;
  }

  function showTable() {
    const head = (title, key, of, number) => h("th", {scope: "col", class: number ? "number" : "", "aria-sort": sorted.key === key ? (sorted.down ? "descending" : "ascending") : null}, h("button", {type: "button", onclick: () => sortBy(key, of)}, title, sorted.key === key ? (sorted.down ? " ↓" : " ↑") : ""));
    cells = new Map();
    scroll.replaceChildren(h("table", {}, h("thead", {}, h("tr", {}, h("td"), h("td"), COLUMNS.map(([title, of], i) => head(title, title, of, i > 1)), fields.map((f) => head(f.path, f.path, (r) => f.values[r.i])))), h("tbody", {}, runs.map(row))));
  }

  // The curves that are shown stay until those of the metric are known. Only an axis of times needs times.
  async function load(name) {
    const number = ++loads, of = [...runs], timed = axis.value === "time";
    const next = of.map((r) => r.series?.names[0] === name && r.series.timed >= timed ? r.series : new JobSeries(r.job.name, points, [name], timed));
    await updateAll(next, of.map((r) => r.job));
    if (number !== loads) return;
    of.forEach((r, i) => { r.series = next[i]; });
    drawn = name;
    failure.replaceChildren();
    draw();
  }

  async function open() {
    const jobs = await callAll("JobService/GetJob", ids.map((id) => ({name: `jobs/${id}`})));
    runs = jobs.map((job, i) => new Run(job, i));
    body.hidden = false;
    fields = differences(jobs);
    axis.querySelector('[data-value="tokens"]').disabled = !jobs.every((job) => tokensOf(job.spec));
    const first = load(FIRST); // most jobs have it: its curves need not wait for the list
    first.catch(() => {});
    showTable();
    await list();
    await (!metric.value || metric.value === FIRST ? first : load(metric.value));
    if (!metric.value) failure.replaceChildren(message("None of these jobs has metrics yet.", true));
  }

  async function list() {
    const some = runs.filter((r) => Number(r.job.step)).slice(0, NAMED);
    const known = await callAll("MetricService/QueryMetrics", some.map((r) => ({job: r.job.name, max_points: 1, rank: 0})));
    const names = [...new Set(known.flatMap((a) => a.series.map((s) => s.name)))].sort();
    metric.replaceChildren(...names.map((n) => h("option", {value: n, selected: n === FIRST}, n)));
  }

  async function live() {
    const open = runs.filter((r) => !ended(r.job.state)), states = open.map((r) => r.job.state);
    const jobs = await callAll("JobService/GetJob", open.map((r) => ({name: r.job.name})));
    open.forEach((r, i) => { r.job = jobs[i]; });
    const read = open.filter((r) => r.series);
    await updateAll(read.map((r) => r.series), read.map((r) => r.job));
    open.forEach((r, i) => {
      if (r.job.state !== states[i]) cells.get(r)?.tr.replaceWith(row(r));
      else if (cells.get(r)) cells.get(r).tr.children[4].textContent = numberText(r.job.step);
    });
    if (!metric.value) {
      await list();
      if (metric.value) await load(metric.value);
    } else if (open.length && !options.range) draw();
  }

  const texts = (r) => [titleOf(r.job), r.job.state, numberText(r.job.step), cells.get(r).value.textContent, cells.get(r).best.textContent, ...fields.map((f) => f.values[r.i])];
  const save = () => download(`compare-${drawn.replace(/[^\w.-]+/g, "-")}.html`, comparePage(drawn, axis.value, lines().map((r) => ({job: r.job, series: r.line, x: r.series.xOf(r.line, axis.value), colour: r.colour})), [...COLUMNS.map(([title]) => title), ...fields.map((f) => f.path)], runs.map((r) => ({colour: r.colour, texts: texts(r)}))));
  content.append(h("form", {class: "bar", onsubmit: (e) => { e.preventDefault(); location.hash = `#/compare/${field.value.split(/[\s,]+/).map((w) => w.replace(/\D/g, "")).filter(Boolean).join(",")}`; }}, h("h1", {}, "Compare"), field, h("button", {type: "submit"}, "Show"), h("span", {class: "fill"}), ids.length ? h("button", {type: "button", onclick: save}, "Save as HTML") : null), failure);
  if (!ids.length) {
    content.append(h("div", {class: "panel empty"}, h("h2", {}, "No jobs chosen"), h("p", {}, "Select jobs in the ", h("a", {href: "#/"}, "overview"), ", or type their numbers above: up to 50.")));
    return () => chart.close();
  }
  const body = h("div", {class: "compare", hidden: true}, h("section", {class: "panel", "aria-label": "Curves"}, h("div", {class: "bar"}, metric, axis,
    h("label", {}, h("input", {type: "checkbox", onchange: (e) => { options.log = e.target.checked; draw(); }}), "Log"),
    h("label", {}, "Smoothing", h("input", {type: "range", min: 0, max: 0.98, step: 0.02, value: 0, oninput: (e) => { options.smoothing = Number(e.target.value); draw(); }})), reset, h("span", {class: "fill"}), status), box),
  h("section", {class: "panel flush", "aria-label": "Jobs and the fields in which their specs differ"}, scroll));
  content.append(body);
  let end = () => {};
  open().then(() => { end = poll(LIVE_MS, live); }).catch(fail);
  return () => { end(); chart.close(); };
}
