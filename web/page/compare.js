// Up to 50 jobs: the curves of one metric in one chart, and what differs between their specs.
import {call} from "./service.js";
import {h, titleOf, numberText, stateBadge, message} from "./text.js";
import {Chart, colourOf} from "./chart.js";

const JOBS = 50, POINTS = 1000;

// Every scalar of a message by its path.
function leaves(value, path, into) {
  if (value === null || typeof value !== "object") into.set(path, String(value));
  else if (Array.isArray(value)) into.set(path, JSON.stringify(value));
  else for (const [name, below] of Object.entries(value)) leaves(below, path ? `${path}.${name}` : name, into);
  return into;
}

function differences(jobs) {
  const specs = jobs.map((job) => leaves(job.spec, "", new Map()));
  const paths = [...new Set(specs.flatMap((s) => [...s.keys()]))].sort();
  return paths.filter((p) => new Set(specs.map((s) => s.get(p) ?? "")).size > 1).map((p) => [p, specs.map((s) => s.get(p) ?? "")]);
}

export function showCompare(content, text) {
  const ids = [...new Set(text.split(",").filter(Boolean))].slice(0, JOBS);
  const failure = h("div"), box = h("div"), legend = h("div", {class: "legend-line"}), table = h("div", {class: "scroll"});
  const metric = h("select", {"aria-label": "Metric", onchange: () => draw().catch(fail)}), chart = new Chart(box, {height: 420});
  const field = h("input", {value: ids.join(", "), "aria-label": "Jobs", placeholder: "job numbers: 12, 15, 18"});
  const options = {log: false, smoothing: 0};
  let jobs = [];

  const fail = (e) => failure.replaceChildren(message(e.message));

  async function draw() {
    const answers = await Promise.all(jobs.map((job) => call("MetricService/QueryMetrics", {job: job.name, names: [metric.value], max_points: POINTS})));
    const series = answers.flatMap((a, i) => a.series.slice(0, 1).map((s) => ({...s, label: `${titleOf(jobs[i])} (${ids[i]})`, colour: i})));
    chart.update(series, [], {...options});
    legend.replaceChildren(...series.map((s) => {
      const swatch = h("span", {class: "swatch"});
      swatch.style.background = colourOf(s.colour);
      return h("span", {}, swatch, `${s.label}: ${numberText(s.last_value)}`);
    }));
  }

  async function open() {
    if (!ids.length) return;
    jobs = await Promise.all(ids.map((id) => call("JobService/GetJob", {name: `jobs/${id}`})));
    const first = await Promise.all(jobs.slice(0, 8).map((job) => call("MetricService/QueryMetrics", {job: job.name, max_points: 1})));
    const names = [...new Set(first.flatMap((a) => a.series.map((s) => s.name)))].sort();
    metric.replaceChildren(...names.map((n) => h("option", {value: n, selected: n === "loss"}, n)));
    table.replaceChildren(h("table", {}, h("thead", {}, h("tr", {}, h("th", {scope: "col"}, "Field"), jobs.map((job) => h("th", {scope: "col"}, titleOf(job), " ", stateBadge(job.state))))),
      h("tbody", {}, differences(jobs).map(([path, values]) => h("tr", {}, h("th", {scope: "row"}, path), values.map((v) => h("td", {}, v)))))));
    await draw();
  }

  content.append(h("form", {class: "bar", onsubmit: (e) => { e.preventDefault(); location.hash = `#/compare/${field.value.replace(/[^\d,]/g, "")}`; }},
    h("h1", {}, "Compare"), field, h("button", {type: "submit"}, "Show"), h("span", {class: "fill"}), metric,
    h("label", {}, "Smoothing ", h("input", {type: "range", min: 0, max: 0.98, step: 0.02, value: 0, oninput: (e) => { options.smoothing = Number(e.target.value); draw().catch(fail); }})),
    h("label", {}, h("input", {type: "checkbox", onchange: (e) => { options.log = e.target.checked; draw().catch(fail); }}), " logarithmic")),
    failure, h("section", {class: "panel"}, box, legend), h("h2", {}, "What differs between the specs"), table);
  open().catch(fail);
  return () => chart.close();
}
