// One job: facts, curves with marks, log, events, checkpoints, spec.
import {call, poll} from "./service.js";
import {h, idOf, titleOf, numberText, durationText, timeText, stateBadge, ended, message} from "./text.js";
import {Chart} from "./chart.js";
import {jobButtons, confirmed} from "./actions.js";

const JOB_MS = 1000, ENDED_MS = 10000, POINTS = 1000, LOG_LINES = 5000, CHARTS = 24;
// Of all the metrics of a model, these come first.
const FIRST = ["loss", "validation_loss", "learning_rate", "grad_norm", "tokens_per_second", "samples_per_second", "mfu", "step_seconds"];

const rank = (name) => { const i = FIRST.indexOf(name); return i < 0 ? FIRST.length : i; };

function facts(job) {
  const last = job.end_time ? Date.parse(job.end_time) : Date.now();
  const rows = [
    ["Step", job.spec?.train?.steps ? `${numberText(job.step)} of ${numberText(job.spec.train.steps)}` : numberText(job.step)],
    ["Queue", job.queue], ["Priority", String(job.priority)],
    ["Attempt", `${job.attempt}, ${job.restarts} counted restarts`],
    ["Created", timeText(job.create_time)], ["Started", timeText(job.start_time)], ["Ended", timeText(job.end_time)],
    ["Time", job.start_time ? durationText((last - Date.parse(job.start_time)) / 1000) : ""],
    ["Forked from", job.forked_from], ["Weights SHA-256", job.weights_sha256],
  ];
  return rows.filter(([, value]) => value).map(([name, value]) => h("div", {class: value.length > 40 ? "long" : ""}, h("dt", {}, name), h("dd", {}, value)));
}

// Restarts, checkpoints and pauses as marks on the step axis.
function marksOf(job, checkpoints, events) {
  const marks = checkpoints.filter((c) => c.state === "COMMITTED").map((c) => ({step: Number(c.step), kind: "checkpoint"}));
  for (const attempt of (job.attempts || []).slice(1)) marks.push({step: Number(attempt.from_step), kind: "restart"});
  let paused = 0;
  for (const e of events) if (e.state === "PAUSED" && e.kind === "state_changed") paused++;
  if (paused && job.state === "PAUSED") marks.push({step: Number(job.step), kind: "pause"});
  return marks;
}

class Curves {
  constructor(parent, onStep) {
    Object.assign(this, {parent, onStep, panels: new Map(), options: {log: false, smoothing: 0}, query: ""});
    this.more = h("p", {class: "dim"});
  }

  async update(job, marks) {
    const answer = await call("MetricService/QueryMetrics", {job: job.name, max_points: POINTS});
    const names = new Map();
    for (const s of answer.series) {
      if (!names.has(s.name)) names.set(s.name, []);
      names.get(s.name).push({...s, label: s.rank > 0 ? `rank ${s.rank}` : s.name});
    }
    const all = [...names.keys()].filter((n) => n.includes(this.query)).sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
    const shown = all.slice(0, CHARTS);
    this.more.textContent = all.length > shown.length ? `${all.length - shown.length} more metrics: filter by name to see them.` : "";
    for (const [name, panel] of this.panels) if (!shown.includes(name)) this.remove(name, panel);
    for (const name of shown) this.show(name, names.get(name), marks);
  }

  show(name, series, marks) {
    let panel = this.panels.get(name);
    if (!panel) {
      const value = h("span", {class: "dim"}), box = h("div", {role: "img"});
      const section = h("section", {class: "panel"}, h("h2", {}, name, " ", value), box);
      this.parent.append(section);
      panel = {section, value, box, chart: new Chart(box, {onStep: this.onStep, sync: "job"})};
      this.panels.set(name, panel);
    }
    const last = series[0];
    panel.value.textContent = numberText(last.last_value);
    panel.box.setAttribute("aria-label", `${name} over steps; ${numberText(last.last_value)} at step ${numberText(last.last_step)}`);
    panel.chart.update(series, marks, this.options);
  }

  remove(name, panel) { panel.chart.close(); panel.section.remove(); this.panels.delete(name); }

  close() { for (const [name, panel] of this.panels) this.remove(name, panel); }
}

// The newest lines; follows the end unless the user has scrolled up.
class Log {
  constructor(job) { Object.assign(this, {job, cursor: "", box: h("pre", {class: "log", tabindex: "0", "aria-label": "Log"}), n: 0}); }

  async update() {
    for (let more = true; more;) {
      const answer = await call("LogService/TailLogs", {job: this.job, cursor: this.cursor});
      for (const m of answer.messages) { this.cursor = m.cursor || this.cursor; this.append(m.lines); }
      more = answer.more;
    }
  }

  append(lines) {
    const follows = this.box.scrollTop + this.box.clientHeight >= this.box.scrollHeight - 30;
    const added = lines.slice(-LOG_LINES).map((l) => h("span", {class: l.stream, title: `attempt ${l.attempt}, ${timeText(l.time)}`}, `[${l.rank}] ${l.text}\n`));
    this.box.append(...added);
    this.n += added.length;
    while (this.n > LOG_LINES) { this.box.firstChild.remove(); this.n--; }
    if (follows) this.box.scrollTop = this.box.scrollHeight;
  }
}

class Events {
  constructor(job) { Object.assign(this, {job, all: [], list: h("ul", {class: "events", tabindex: "0", "aria-label": "Events"})}); }

  async update() {
    for (;;) {
      const after = this.all.length ? this.all[this.all.length - 1].number : "0";
      const {events} = await call("JobService/ListEvents", {name: this.job, after_event: after, page_size: 1000});
      this.all.push(...events);
      for (const e of events)
        this.list.prepend(h("li", {}, h("span", {class: "dim"}, timeText(e.time) + " "), h("strong", {}, e.kind), " ", e.kind === "state_changed" ? `${e.state} ` : "", e.message));
      if (events.length < 1000) return;
    }
  }
}

function checkpointRow(job, c, done) {
  const pin = h("button", {type: "button", onclick: () => confirmed(
    {title: c.pinned ? "Unpin" : "Pin", text: c.pinned ? "The checkpoint may be deleted when newer ones exist." : "The checkpoint is kept until it is unpinned."},
    async () => { await call("CheckpointService/PinCheckpoint", {name: c.name, pinned: !c.pinned}); done(); })}, c.pinned ? "Unpin" : "Pin");
  return h("tr", {}, h("td", {class: "number"}, numberText(c.step)), h("td", {}, c.state), h("td", {}, timeText(c.create_time)),
    h("td", {}, c.state === "COMMITTED" ? [pin, " ", h("a", {href: `#/new/${idOf(job)}@${c.step}`}, "Fork")] : null));
}

export function showJob(content, id) {
  const name = `jobs/${id}`, failure = h("div"), head = h("div", {class: "bar"}), list = h("dl", {class: "facts"});
  const why = h("div"), charts = h("div", {class: "charts"}), step = h("span", {class: "dim", role: "status"});
  const curves = new Curves(charts, (s) => { step.textContent = s === null ? "" : `step ${numberText(s)}`; });
  const log = new Log(name), events = new Events(name), checkpoints = h("tbody"), spec = h("pre", {class: "spec", tabindex: "0"});
  let wait = JOB_MS, turns = 0, headKey = "", stored = [];

  async function update() {
    turns++;
    try {
      const job = await call("JobService/GetJob", {name});
      const key = job.state + titleOf(job);
      if (key !== headKey) {
        headKey = key;
        head.replaceChildren(h("h1", {}, titleOf(job)), h("span", {class: "dim"}, name), stateBadge(job.state), h("span", {class: "fill"}), ...jobButtons(job, update));
        spec.textContent = JSON.stringify(job.spec, null, 2);
        document.title = `${titleOf(job)} - Trainyard`;
      }
      list.replaceChildren(...facts(job));
      const waits = ["QUEUED", "STARTING", "RESTARTING"].includes(job.state);
      why.replaceChildren(message(waits ? (await call("JobService/ExplainJob", {name})).summary : job.reason) || "");
      await events.update();
      stored = (await call("CheckpointService/ListCheckpoints", {parent: name, page_size: 1000})).checkpoints;
      checkpoints.replaceChildren(...stored.slice(0, 50).map((c) => checkpointRow(name, c, update)));
      await curves.update(job, marksOf(job, stored, events.all));
      await log.update();
      wait = ended(job.state) ? ENDED_MS : JOB_MS;
      failure.replaceChildren();
    } catch (e) {
      failure.replaceChildren(message(e.message));
      throw e;
    }
  }

  const again = () => update().catch(() => {});
  const bar = h("div", {class: "bar"},
    h("label", {}, "Smoothing ", h("input", {type: "range", min: 0, max: 0.98, step: 0.02, value: 0, oninput: (e) => { curves.options = {...curves.options, smoothing: Number(e.target.value)}; again(); }})),
    h("label", {}, h("input", {type: "checkbox", onchange: (e) => { curves.options = {...curves.options, log: e.target.checked}; again(); }}), " logarithmic"),
    h("input", {type: "search", placeholder: "metric", "aria-label": "Filter metrics by name", oninput: (e) => { curves.query = e.target.value; again(); }}),
    h("a", {href: `#/compare/${id}`}, "Compare"), h("a", {href: `#/new/${id}`}, "New job like this"), h("span", {class: "fill"}), step,
    h("span", {class: "dim"}, "Lines: restart; dotted: checkpoint. Drag to zoom, double click to reset."));
  content.append(failure, head, why, list, bar, charts, curves.more,
    h("div", {class: "split"}, h("section", {class: "panel"}, h("h2", {}, "Log"), log.box), h("section", {class: "panel"}, h("h2", {}, "Events"), events.list)),
    h("div", {class: "split"}, h("section", {class: "panel"}, h("h2", {}, "Spec"), spec),
      h("section", {class: "panel"}, h("h2", {}, "Checkpoints"), h("div", {class: "scroll"}, h("table", {}, h("thead", {}, h("tr", {}, ["Step", "State", "Created"].map((t) => h("th", {scope: "col"}, t)), h("td"))), checkpoints)))));
  let next = 0;
  const end = poll(JOB_MS, async () => {
    if (Date.now() < next) return;
    await update();
    next = Date.now() + (wait === JOB_MS ? 0 : wait);
  });
  return () => { end(); curves.close(); document.title = "Trainyard"; };
}
