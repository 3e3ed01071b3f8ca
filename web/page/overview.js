// The overview: jobs with state, step, curve of the loss, and when a job ends or why it waits; hosts; queues. Jobs come
// in pages of PAGE, so that the page stays as fast with ten thousand jobs as with ten.
import {call, callAll, poll} from "./service.js";
import {h, idOf, titleOf, stepsOf, numberText, shortText, durationText, timeText, agoText, stateBadge, ended, waits, message, meter, tabs} from "./text.js";
import {sparkline} from "./svg.js";
import {hostRail, watchHosts} from "./hosts.js";

const PAGE = 50, LIST_MS = 2000, CURVE_MS = 5000, CURVE_POINTS = 60, TYPING_MS = 250, COMPARED = 50;
const STATES = [["", "All"], ["RUNNING", "Running"], ["QUEUED", "Queued"], ["PAUSED", "Paused"], ["SUCCEEDED", "Succeeded"], ["FAILED", "Failed"], ["CANCELLED", "Cancelled"]];
// The loss of models, and as frameworks name it.
const LOSSES = ["loss", "train/loss", "train_loss", "training_loss", "train/train_loss"];

// Seconds that are left, by the newest half of the points; NaN: unknown.
function remaining(job, series) {
  const time = series.time_us.map(Number), step = series.step.map(Number), last = step.length - 1, from = Math.floor(last / 2);
  const seconds = (time[last] - time[from]) / 1e6;
  return stepsOf(job) && seconds > 0 && time[from] ? seconds / (step[last] - step[from]) * (stepsOf(job) - Number(job.step)) : NaN;
}

class Row {
  constructor(chosen) {
    this.select = h("input", {type: "checkbox", onchange: (e) => chosen(this.job, e.target.checked)});
    this.name = h("a", {class: "name"});
    this.labels = h("div", {class: "labels"});
    this.state = h("td");
    this.step = h("td", {class: "step number"});
    this.curve = h("td", {class: "wide"});
    this.note = h("span");
    this.created = h("td", {class: "number dim wide"});
    this.tr = h("tr", {}, h("td", {class: "select"}, this.select), h("th", {scope: "row", class: "title"}, h("div", {}, this.name), this.labels), this.state, this.step, this.curve, h("td", {class: "note"}, this.note), this.created);
    Object.assign(this, {job: null, read: 0, text: "", ends: NaN});
  }

  update(job, selected) {
    const old = this.job;
    this.job = job;
    if (old?.name !== job.name) {
      this.select.setAttribute("aria-label", `Select ${titleOf(job)}, ${idOf(job.name)}`);
      this.name.textContent = titleOf(job);
      this.name.href = `#/jobs/${idOf(job.name)}`;
      const labels = Object.entries(job.spec?.labels || {}).map(([k, v]) => v ? `${k}=${v}` : k);
      this.labels.textContent = [idOf(job.name), job.queue === "default" ? null : job.queue, ...labels].filter(Boolean).join(" · ");
      this.curve.replaceChildren();
      Object.assign(this, {read: 0, text: "", ends: NaN});
    }
    this.select.checked = selected;
    this.created.textContent = agoText(job.create_time);
    this.created.title = timeText(job.create_time);
    if (old?.state !== job.state || old?.name !== job.name) { this.state.replaceChildren(stateBadge(job.state)); this.read = 0; }
    if (old?.step !== job.step || old?.name !== job.name || old?.state !== job.state) {
      const steps = stepsOf(job);
      this.step.replaceChildren(h("span", {}, Number(job.step) || steps ? numberText(job.step) : ""), steps ? h("span", {class: "dim"}, ` / ${shortText(steps)}`) : "", meter(job) || "");
    }
    this.say();
  }

  say() {
    const job = this.job, took = ended(job.state) && job.start_time && job.end_time ? `took ${durationText((Date.parse(job.end_time) - Date.parse(job.start_time)) / 1000)}` : "";
    const ends = job.state === "RUNNING" && Number.isFinite(this.ends) ? `ends in about ${durationText(this.ends)}` : "";
    const text = waits(job.state) ? this.text || job.reason : job.reason || ends || took;
    if (this.note.textContent !== text) { this.note.textContent = text; this.note.title = text; }
  }

  due() { return Date.now() - this.read >= (ended(this.job.state) ? 3600e3 : CURVE_MS); }

  draw(series) {
    this.ends = remaining(this.job, series);
    this.curve.replaceChildren(h("div", {class: "curve"}, sparkline(series), h("span", {class: "dim"}, shortText(Number(series.last_value)))));
  }
}

// Curves and reasons for waiting: only of rows that can be seen, a call for each job.
async function details(seen) {
  const due = seen.filter((r) => r.job && r.due()), waiting = due.filter((r) => waits(r.job.state)), drawn = due.filter((r) => Number(r.job.step));
  const names = due.map((r) => r.job.name);
  for (const r of due) r.read = Date.now();
  const [reasons, curves] = await Promise.all([callAll("JobService/ExplainJob", waiting.map((r) => ({name: r.job.name}))),
    callAll("MetricService/QueryMetrics", drawn.map((r) => ({job: r.job.name, names: LOSSES, max_points: CURVE_POINTS, rank: 0, with_time: true})))]);
  const same = new Set(due.filter((r, i) => r.job.name === names[i])); // the others show another job meanwhile
  waiting.forEach((r, i) => { if (same.has(r)) r.text = reasons[i].summary; });
  drawn.forEach((r, i) => { if (same.has(r) && curves[i].series.length) r.draw(curves[i].series[0]); });
  for (const r of same) r.say();
}

export function showOverview(content) {
  const rows = [], visible = new Set(), chosen = new Map(), tokens = [""], failure = h("div");
  let next = "", typing = 0;
  const compare = h("button", {type: "button", disabled: true, onclick: () => { location.hash = `#/compare/${[...chosen.keys()].map(idOf).join(",")}`; }}, "Compare");
  const older = h("button", {type: "button", disabled: true, onclick: () => { tokens.push(next); turn(); }}, "Older"), newer = h("button", {type: "button", disabled: true, onclick: () => { tokens.pop(); turn(); }}, "Newer");
  const states = tabs("State", STATES, "", () => restart()), count = h("span", {class: "dim", role: "status"});
  const filter = h("input", {type: "search", id: "search", placeholder: "Name, or label=value", "aria-label": "Find jobs by name or label", title: "Press / to go here", oninput: () => { clearTimeout(typing); typing = setTimeout(restart, TYPING_MS); }});
  const body = h("tbody"), table = h("table", {class: "jobs"}, h("thead", {}, h("tr", {}, h("td", {class: "select"}), h("th", {scope: "col"}, "Job"), h("th", {scope: "col"}, "State"), h("th", {scope: "col", class: "number"}, "Step"), h("th", {scope: "col", class: "wide"}, "Loss"), h("th", {scope: "col"}, "Note"), h("th", {scope: "col", class: "number wide"}, "Created"))), body);
  const empty = h("div", {class: "empty", hidden: true}), rail = hostRail();
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const r = rows.find((one) => one.tr === entry.target);
      if (entry.isIntersecting) visible.add(r); else visible.delete(r);
    }
    details([...visible]).catch(() => {});
  });

  function choose(job, selected) {
    if (selected && chosen.size < COMPARED) chosen.set(job.name, true); else chosen.delete(job.name);
    compare.disabled = chosen.size === 0;
    compare.textContent = chosen.size ? `Compare ${chosen.size}` : "Compare";
  }

  function show(jobs) {
    while (rows.length < jobs.length) { rows.push(new Row(choose)); body.append(rows[rows.length - 1].tr); seen.observe(rows[rows.length - 1].tr); }
    while (rows.length > jobs.length) { const r = rows.pop(); visible.delete(r); seen.unobserve(r.tr); r.tr.remove(); }
    jobs.forEach((job, i) => rows[i].update(job, chosen.has(job.name)));
    const filtered = filter.value.trim() || states.value;
    table.hidden = !jobs.length;
    empty.hidden = jobs.length > 0;
    if (!jobs.length) empty.replaceChildren(h("h2", {}, filtered ? "No job matches" : "No jobs yet"), filtered ? h("p", {}, "Choose another state, or search for another text.") : h("p", {}, h("a", {href: "#/new"}, "Make one here"), ", or run ", h("code", {}, "trainyard submit docs/example.yaml"), "."));
    const from = (tokens.length - 1) * PAGE;
    count.textContent = jobs.length ? `${numberText(from + 1)}–${numberText(from + jobs.length)}${next ? " of more" : ""}` : "";
    newer.disabled = tokens.length === 1;
    older.disabled = !next;
  }

  async function update() {
    const text = filter.value.trim(), label = /^[A-Za-z0-9._-]+=/.test(text), token = tokens[tokens.length - 1];
    try {
      const answer = await call("JobService/ListJobs", {page_size: PAGE, page_token: token, state: states.value || undefined, ...(label ? {labels: [text]} : {search: text})});
      if (token !== tokens[tokens.length - 1] || text !== filter.value.trim()) return;
      next = answer.next_page_token;
      show(answer.jobs);
      failure.replaceChildren();
    } catch (e) {
      failure.replaceChildren(message(e.message));
      throw e;
    }
    details([...visible]).catch(() => {});
  }

  const turn = () => update().catch(() => {});
  function restart() { tokens.length = 1; turn(); }

  content.append(h("h1", {class: "hidden"}, "Overview"), failure, h("div", {class: "overview"},
    h("section", {"aria-label": "Jobs"}, h("div", {class: "bar"}, states, h("span", {class: "fill"}), filter, compare), h("div", {class: "panel flush"}, h("div", {class: "scroll"}, table), empty),
      h("div", {class: "bar"}, count, h("span", {class: "fill"}), newer, older)), rail));
  const end = poll(LIST_MS, update), endHosts = watchHosts((now) => rail.update(now), () => {});
  return () => { end(); endHosts(); clearTimeout(typing); seen.disconnect(); };
}
