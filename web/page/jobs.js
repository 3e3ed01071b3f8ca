// The list of jobs: state, step, curve of the loss, and when a job ends or why it waits.
import {call, poll} from "./service.js";
import {h, idOf, titleOf, numberText, durationText, timeText, stateBadge, ended, message} from "./text.js";

const PAGE = 100, LIST_MS = 2000, CURVE_MS = 5000, CURVE_POINTS = 60;
const STATES = ["QUEUED", "STARTING", "RUNNING", "RESTARTING", "PREEMPTING", "PAUSING", "PAUSED", "CANCELLING",
  "SUCCEEDED", "FAILED", "CANCELLED"];

function sparkline(series) {
  const ns = "http://www.w3.org/2000/svg", svg = document.createElementNS(ns, "svg");
  svg.setAttribute("class", "spark");
  svg.setAttribute("viewBox", "0 0 110 26");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${series.name}: ${numberText(series.last_value)}`);
  const values = series.mean.map(Number), shown = values.filter(Number.isFinite);
  const low = Math.min(...shown), high = Math.max(...shown), line = document.createElementNS(ns, "polyline");
  line.setAttribute("points", values.map((v, i) => Number.isFinite(v)
    ? `${(2 + 106 * i / Math.max(1, values.length - 1)).toFixed(1)},${(24 - 22 * (v - low) / (high - low || 1)).toFixed(1)}` : "")
    .join(" "));
  svg.append(line);
  return svg;
}

// The time that is left if the job goes on as it did since its start.
function remaining(job) {
  const steps = Number(job.spec?.train?.steps || 0), step = Number(job.step);
  if (job.state !== "RUNNING" || !steps || !step || !job.start_time) return "";
  const seconds = (Date.now() - Date.parse(job.start_time)) / 1000;
  return "ends in about " + durationText(seconds / step * (steps - step));
}

function row() {
  const cells = {
    select: h("input", {type: "checkbox"}), name: h("a", {class: "name"}), state: h("td"), step: h("td", {class: "number"}),
    curve: h("td"), note: h("td", {class: "wrap"}), created: h("td", {class: "number"}),
  };
  const tr = h("tr", {}, h("td", {}, cells.select), h("th", {scope: "row"}, cells.name, h("span", {class: "dim"})), cells.state,
    cells.step, cells.curve, cells.note, cells.created);
  return {tr, cells, job: null, curve: 0, note: ""};
}

function rowUpdate(r, job) {
  const steps = job.spec?.train?.steps;
  if (!r.job) {
    r.cells.select.setAttribute("aria-label", `Select ${titleOf(job)}`);
    r.cells.name.textContent = titleOf(job);
    r.cells.name.href = `#/jobs/${idOf(job.name)}`;
    r.tr.querySelector(".dim").textContent = ` ${idOf(job.name)}`;
    r.cells.created.textContent = timeText(job.create_time);
  }
  if (r.job?.state !== job.state) r.cells.state.replaceChildren(stateBadge(job.state));
  r.cells.step.textContent = steps ? `${numberText(job.step)} / ${numberText(steps)}` : numberText(job.step);
  r.job = job;
  r.cells.note.textContent = ended(job.state) || job.state === "RUNNING" ? job.reason || remaining(job) : r.note || job.reason;
}

// The curve and the reason for waiting need a call for each job: only for rows that can be seen.
async function rowDetails(r) {
  const job = r.job;
  if (Date.now() - r.curve < (ended(job.state) ? 3600e3 : CURVE_MS)) return;
  r.curve = Date.now();
  if (["QUEUED", "STARTING", "RESTARTING"].includes(job.state)) {
    r.note = (await call("JobService/ExplainJob", {name: job.name})).summary;
    r.cells.note.textContent = r.note;
  }
  if (!Number(job.step)) return;
  const answer = await call("MetricService/QueryMetrics", {job: job.name, names: ["loss"], max_points: CURVE_POINTS});
  if (answer.series.length) r.cells.curve.replaceChildren(sparkline(answer.series[0]));
}

export function showJobs(content) {
  const rows = new Map(), visible = new Set();
  let order = [], limit = PAGE, more = false;
  const state = h("select", {"aria-label": "State", onchange: () => restart()}, h("option", {value: ""}, "all states"),
    STATES.map((s) => h("option", {value: s}, s)));
  const filter = h("input", {type: "search", placeholder: "name, queue or label", "aria-label": "Filter", oninput: () => arrange()});
  const compare = h("button", {type: "button", disabled: true, onclick: () => { location.hash = `#/compare/${chosen().join(",")}`; }}, "Compare");
  const body = h("tbody"), failure = h("div"), count = h("span", {class: "dim", role: "status"});
  const further = h("button", {type: "button", onclick: () => { limit += 500; update(); }}, "Show more");
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const r = rows.get(entry.target.dataset.job);
      if (entry.isIntersecting) { visible.add(r); rowDetails(r).catch(() => {}); } else visible.delete(r);
    }
  });

  const chosen = () => [...rows.values()].filter((r) => r.cells.select.checked).map((r) => idOf(r.job.name)).slice(0, 50);
  const matches = (job) => [job.name, job.display_name, job.queue, ...Object.entries(job.spec?.labels || {}).flat()]
    .some((text) => text.toLowerCase().includes(filter.value.toLowerCase()));

  function arrange() {
    const shown = order.filter((r) => matches(r.job));
    if (shown.length !== body.children.length || shown.some((r, i) => body.children[i] !== r.tr))
      body.replaceChildren(...shown.map((r) => r.tr));
    count.textContent = `${shown.length} ${shown.length === 1 ? "job" : "jobs"}${more ? " of more" : ""}`;
    further.hidden = !more;
  }

  async function update() {
    let answer, all = [], token = "";
    try {
      do {
        answer = await call("JobService/ListJobs", {page_size: Math.min(1000, limit - all.length), page_token: token, state: state.value || undefined});
        all = all.concat(answer.jobs);
        token = answer.next_page_token;
      } while (token && all.length < limit);
      failure.replaceChildren();
    } catch (e) {
      failure.replaceChildren(message(e.message));
      throw e;
    }
    more = token !== "";
    order = all.map((job) => {
      let r = rows.get(job.name);
      if (!r) {
        rows.set(job.name, r = row());
        r.tr.dataset.job = job.name;
        r.cells.select.addEventListener("change", () => { compare.disabled = chosen().length === 0; });
        seen.observe(r.tr);
      }
      rowUpdate(r, job);
      return r;
    });
    arrange();
    for (const r of visible) if (!ended(r.job.state)) rowDetails(r).catch(() => {});
  }

  function restart() { limit = PAGE; update().catch(() => {}); }

  content.append(h("div", {class: "bar"}, h("h1", {}, "Jobs"), count, h("span", {class: "fill"}), filter, state, compare), failure,
    h("div", {class: "scroll"}, h("table", {}, h("thead", {}, h("tr", {}, h("td"), ["Job", "State", "Step", "Loss", "", "Created"]
      .map((title) => title ? h("th", {scope: "col"}, title) : h("td")))), body)), further);
  const end = poll(LIST_MS, update);
  return () => { end(); seen.disconnect(); };
}
