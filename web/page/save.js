// A job or a comparison as one HTML file that needs no script and no network.
//
// The file is built from elements and text nodes, which the browser then prints, so that texts of the service stay texts.
import {h, titleOf, idOf, numberText, timeText, clockText, metricText} from "./text.js";
import {AXES, chart, colourOf, dashOf, swatch} from "./svg.js";

const STYLE = `:root{color-scheme:light dark;--line:light-dark(#dde1e8,#2a3240);--dim:light-dark(#5a6475,#98a3b5)}
body{font:14px/1.5 system-ui,sans-serif;max-width:1200px;margin:24px auto;padding:0 16px}h1{font-size:22px}h2{font-size:16px;margin:28px 0 8px}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(360px,1fr));gap:16px}figure{margin:0;border:1px solid var(--line);border-radius:8px;padding:8px}figcaption{font-weight:600}
svg{width:100%;height:auto}.swatch{width:16px;height:10px}.grid{stroke:var(--line)}.axis{fill:var(--dim);font-size:11px}.mark.checkpoint{fill:#0b7a6b}.mark.restart{stroke:#b98000}.mark.pause{stroke:#7a8290;stroke-dasharray:4 3}
table{border-collapse:collapse}td,th{text-align:left;border-bottom:1px solid var(--line);padding:3px 10px 3px 0;font-variant-numeric:tabular-nums;vertical-align:top}pre{white-space:pre-wrap;overflow-wrap:anywhere;font-size:12px}.scroll{overflow-x:auto}`;

function page(title, ...content) {
  const main = h("main", {}, h("h1", {}, title), h("p", {}, `Saved from Trainyard, ${timeText(Date.now())}`), ...content);
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>${STYLE}</style>
${h("title", {}, title).outerHTML}
</head>
<body>
${main.outerHTML}
</body>
</html>
`;
}

const rows = (pairs) => h("table", {}, h("tbody", {}, pairs.filter(([, v]) => v !== "" && v !== undefined && v !== null).map(([k, v]) => h("tr", {}, h("th", {scope: "row"}, k), h("td", {}, v)))));

const line = (s, x, i) => ({x, mean: s.mean, min: s.min, max: s.max, colour: colourOf(i), dash: dashOf(i)});
const SHAPE = {log: false, smoothing: 0, range: null, marks: [], axis: "step"};

// series: a JobSeries. lines: of the log.
export function jobPage(job, series, marks, lines, events) {
  const charts = [...series.byName()].map(([name, all]) => h("figure", {}, h("figcaption", {}, name, all.length === 1 ? ` ${metricText(name)(Number(all[0].last))}` : ""),
    chart({...SHAPE, title: `${name} over steps`, series: all.map((s, i) => line(s, s.step, i)), marks: marks.map((m) => ({...m, x: m.step})), yText: metricText(name)}, 460, 230).element));
  return page(`${titleOf(job)} (job ${idOf(job.name)})`, rows([["State", job.state], ["Reason", job.reason], ["Step", numberText(job.step)], ["Created", timeText(job.create_time)], ["Started", timeText(job.start_time)], ["Ended", timeText(job.end_time)], ["Attempts", String(job.attempt)], ["Weights SHA-256", job.weights_sha256]]),
    h("h2", {}, "Curves"), h("div", {class: "charts"}, charts), h("h2", {}, "Events"), rows(events.map((e) => [timeText(e.time), `${e.kind} ${e.kind === "state_changed" ? e.state : ""} ${e.message}`])),
    h("h2", {}, `Log, ${lines.length === 1 ? "one line" : `the last ${numberText(lines.length)} lines`}`), h("pre", {}, lines.map((l) => `${clockText(l.time * 1000)} [${l.rank}] ${l.text}\n`).join("")), h("h2", {}, "Spec"), h("pre", {}, JSON.stringify(job.spec, null, 2)));
}

// runs: [{job, series, x, colour}] with a series of the metric. columns: titles of the table; cells: rows of texts.
export function comparePage(metric, axis, runs, columns, cells) {
  return page(`${metric} of ${runs.length} ${runs.length === 1 ? "job" : "jobs"}`, h("figure", {}, chart({...SHAPE, axis, title: metric, series: runs.map((r) => line(r.series, r.x, r.colour)), yText: metricText(metric)}, 1100, 460).element, h("figcaption", {}, `${metric} over ${AXES[axis].label.toLowerCase()}`)),
    h("h2", {}, "Jobs"), h("div", {class: "scroll"}, h("table", {}, h("thead", {}, h("tr", {}, h("th"), columns.map((c) => h("th", {scope: "col"}, c)))), h("tbody", {}, cells.map((row) => h("tr", {}, h("td", {}, swatch(row.colour)), row.texts.map((t) => h("td", {}, t))))))));
}
