// One job: facts, curves with marks, and beside them log, events, checkpoints, plan and spec.
import {call, poll} from "./service.js";
import {h, idOf, titleOf, stepsOf, numberText, bytesText, durationText, timeText, clockText, stateBadge, ended, waits, message, meter, tabs, download} from "./text.js";
import {JobSeries} from "./series.js";
import {RankSeconds} from "./rank_seconds.js";
import {Curves} from "./curves.js";
import {Log} from "./log.js";
import {jobButtons, pinButton, sampleFrom, failureText} from "./actions.js";
import {planView, comparison} from "./plan.js";
import {schemaLoad, specView} from "./spec_view.js";
import {jobPage} from "./save.js";

const JOB_MS = 1000, ENDED_MS = 15000, POINTS = 1000, EVENTS = 2000, CHECKPOINTS = 200;

function facts(job) {
  const last = job.end_time ? Date.parse(job.end_time) : Date.now(), attempt = job.attempts[job.attempts.length - 1];
  const hosts = [...new Set((attempt?.placements || []).map((p) => p.hostname || idOf(p.executor)))];
  const rows = [
    ["Started", timeText(job.start_time)], ["Ended", timeText(job.end_time)], ["Time", job.start_time ? durationText((last - Date.parse(job.start_time)) / 1000) : ""],
    ["Created", job.start_time ? "" : timeText(job.create_time)], ["Ranks", attempt ? `${attempt.world_size || attempt.placements.length} on ${hosts.slice(0, 3).join(", ")}${hosts.length > 3 ? ` and ${hosts.length - 3} more` : ""}` : ""],
    ["Attempt", job.attempt ? `${job.attempt}${job.restarts ? `, ${job.restarts} counted ${job.restarts === 1 ? "restart" : "restarts"}` : ""}` : ""],
    ["Queue", job.queue], ["Priority", job.priority ? String(job.priority) : ""], ["Labels", Object.entries(job.spec?.labels || {}).map(([k, v]) => `${k}=${v}`).join(", ")],
    ["Forked from", job.forked_from ? `${job.forked_from.replace(/\/checkpoints.*/, "")}, step ${numberText(job.forked_step)}` : ""], ["Weights from", job.initialised_from], ["Weights SHA-256", job.weights_sha256 ? `${job.weights_sha256.slice(0, 16)}…` : ""],
  ];
  return rows.filter(([, value]) => value).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {title: name === "Weights SHA-256" ? job.weights_sha256 : null}, value)));
}

// Restarts, checkpoints and pauses on the axis. An attempt that follows a pause continues at the pause's step.
export function marksOf(job, checkpoints, events) {
  const marks = checkpoints.filter((c) => c.state === "COMMITTED").map((c) => ({step: Number(c.step), kind: "checkpoint", text: `checkpoint of step ${numberText(c.step)}${c.pinned ? ", pinned" : ""}`}));
  const paused = new Set(events.filter((e) => e.state === "PAUSED" && e.kind === "state_changed").map((e) => e.attempt));
  for (const attempt of job.attempts.slice(1)) {
    const before = job.attempts.find((a) => a.number === attempt.number - 1);
    marks.push(paused.has(attempt.number - 1) ? {step: Number(attempt.from_step), kind: "pause", text: "paused"} : {step: Number(attempt.from_step), kind: "restart", text: `attempt ${attempt.number}${before?.reason ? ` after: ${before.reason}` : ""}`});
  }
  if (job.state === "PAUSED" && paused.has(job.attempt)) marks.push({step: Number(job.step), kind: "pause", text: "paused"});
  return marks;
}

class Events {
  constructor(job) {
    Object.assign(this, {job, all: [], last: "0"});
    this.list = h("ul", {class: "events"});
    this.element = h("section", {class: "pane fit", "aria-label": "Events", tabindex: 0}, this.list);
  }

  async update() {
    for (;;) {
      const {events} = await call("JobService/ListEvents", {name: this.job, after_event: this.last, page_size: 1000});
      for (const e of events) {
        this.last = e.number;
        this.list.prepend(h("li", {}, h("time", {title: timeText(e.time)}, clockText(e.time)), h("div", {}, e.kind === "state_changed" ? stateBadge(e.state) : h("strong", {}, e.kind.replace(/_/g, " ")), " ", e.message)));
      }
      this.all = this.all.concat(events).slice(-EVENTS);
      while (this.list.children.length > EVENTS) this.list.lastChild.remove();
      if (events.length < 1000) return;
    }
  }
}

// A model that generates text can be sampled.
const generates = (spec) => Boolean(spec?.model?.gpt || spec?.model?.llama);

function checkpointTable(job, stored, done) {
  if (!stored.length) return [h("p", {class: "empty"}, "No checkpoint yet.")];
  return [h("table", {}, h("thead", {}, h("tr", {}, ["Step", "State", "Size", "Validation loss"].map((t) => h("th", {scope: "col", class: t === "State" ? "" : "number"}, t)), h("td"))), h("tbody", {}, stored.map((c) => h("tr", {title: `${c.name}, ${timeText(c.create_time)}`},
    h("td", {class: "number"}, numberText(c.step)), h("td", {}, stateBadge(c.state)), h("td", {class: "number"}, bytesText(c.bytes)), h("td", {class: "number"}, numberText(c.validation_loss)),
    h("td", {class: "number"}, c.state === "COMMITTED" ? [pinButton(c, done), " ", h("a", {href: `#/new/${idOf(job.name)}@${c.step}`}, "Fork"), generates(job.spec) ? [" ", h("button", {type: "button", class: "plain", onclick: () => sampleFrom(c.name, `${titleOf(job)}, step ${numberText(c.step)}`)}, "Sample")] : null] : null)))))];
}

export function showJob(content, id) {
  const name = `jobs/${id}`, failure = h("div"), head = h("div", {class: "bar"}), list = h("dl", {class: "facts"}), why = h("div"), progress = h("div", {class: "progress"});
  const series = new JobSeries(name, POINTS), log = new Log(name), events = new Events(name), seconds = new RankSeconds(name);
  const checkpoints = h("section", {class: "pane fit", "aria-label": "Checkpoints", tabindex: 0}), plan = h("section", {class: "pane fit", "aria-label": "Plan", tabindex: 0}), spec = h("section", {class: "pane fit", "aria-label": "Spec", tabindex: 0});
  const panes = {log: log.element, events: events.element, checkpoints, plan, spec};
  const fork = h("a", {class: "button", hidden: true});
  let job = null, stored = [], marks = [], headKey = "", next = 0, planned = "";
  const curves = new Curves(series, (step) => { log.follow(step === null ? null : series.timeOf(step)); if (step !== null) forkFrom(step); });
  const choice = tabs("Details", [["log", "Log"], ["events", "Events"], ["checkpoints", "Checkpoints"], ["plan", "Plan"], ["spec", "Spec"]], "log", (key) => {
    for (const [k, e] of Object.entries(panes)) e.hidden = k !== key;
    if (key === "log") log.render();
    if (key === "plan") showPlan();
  });
  curves.bar.insertBefore(fork, curves.status);
  for (const [k, e] of Object.entries(panes)) e.hidden = k !== "log";

  // The newest checkpoint at or before the step under the cursor.
  function forkFrom(step) {
    const from = stored.filter((c) => c.state === "COMMITTED" && Number(c.step) <= step).sort((a, b) => Number(b.step) - Number(a.step))[0];
    fork.hidden = !from;
    if (!from) return;
    fork.textContent = `Fork from step ${numberText(from.step)}`;
    fork.href = `#/new/${id}@${from.step}`;
  }

  async function showPlan() {
    if (planned === headKey) return;
    planned = headKey;
    if (!job.spec?.model) { plan.replaceChildren(h("p", {class: "empty"}, "A program has no plan: only models have one.")); return; }
    plan.replaceChildren(h("p", {class: "dim"}, "An executor computes the plan…"));
    try {
      const answer = await call("JobService/ValidateJob", {spec: job.spec, wait_for_hosts: true});
      plan.replaceChildren(...(answer.plan ? [h("h2", {}, "Planned and measured"), comparison(answer.plan, series.byName()), h("h2", {class: "group"}, "Plan"), ...planView(answer.plan)] : [message(answer.plan_reason || answer.problems[0] || "There is no plan.", true)]));
    } catch (e) { plan.replaceChildren(message(failureText(e))); planned = ""; }
  }

  async function showHead() {
    head.replaceChildren(h("h1", {}, titleOf(job)), h("span", {class: "dim"}, `job ${id}`), stateBadge(job.state), h("span", {class: "fill"}), h("a", {class: "button", href: `#/compare/${id}`}, "Compare"), h("a", {class: "button", href: `#/new/${id}`}, "New job like this"),
      h("button", {type: "button", onclick: () => save()}, "Save as HTML"), ...jobButtons(job, () => update(true)));
    document.title = `${titleOf(job)} · Trainyard`;
    spec.replaceChildren(specView(await schemaLoad(), job.spec || {}));
  }

  function showProgress() {
    const bar = meter(job), speed = series.speed(), left = (stepsOf(job) - Number(job.step)) / speed;
    progress.hidden = !bar && !Number(job.step);
    progress.replaceChildren(...[h("span", {}, h("strong", {}, numberText(job.step)), stepsOf(job) ? h("span", {class: "dim"}, ` of ${numberText(stepsOf(job))} steps`) : h("span", {class: "dim"}, " steps")), bar,
      job.state === "RUNNING" && bar && Number.isFinite(left) ? h("span", {class: "dim"}, `ends in about ${durationText(left)}`) : null].filter(Boolean));
  }

  async function update(now) {
    try {
      job = await call("JobService/GetJob", {name});
      body.hidden = false;
      const key = job.state + titleOf(job);
      if (key !== headKey) { headKey = key; await showHead(); }
      list.replaceChildren(...facts(job));
      why.replaceChildren(message(waits(job.state) ? (await call("JobService/ExplainJob", {name})).summary : job.reason, !ended(job.state) || job.state === "CANCELLED") || "");
      await events.update();
      stored = (await call("CheckpointService/ListCheckpoints", {parent: name, page_size: CHECKPOINTS})).checkpoints;
      const focused = checkpoints.contains(document.activeElement) && document.activeElement !== checkpoints; // a button of the table would lose the focus
      if (now === true || !focused) checkpoints.replaceChildren(...checkpointTable(job, stored.filter((c) => c.state !== "DELETED"), () => update(true)));
      marks = marksOf(job, stored, events.all);
      await seconds.update(job);
      await series.update(job);
      const placed = job.attempts[job.attempts.length - 1]?.placements || [], hosts = new Set(placed.map((p) => p.executor));
      curves.update(marks, Object.fromEntries(placed.map((p) => [p.rank, hosts.size > 1 ? `rank ${p.rank}, ${p.hostname || idOf(p.executor)}` : `rank ${p.rank}`])));
      nothing.hidden = series.all.size > 0;
      curves.bar.hidden = series.all.size === 0;
      nothing.replaceChildren(h("h2", {}, ended(job.state) ? "The job has no metrics" : "No metrics yet"), h("p", {}, job.spec?.program ? "A program reports them in one of the ways of docs/program.md." : "The curves begin with the first step."));
      showProgress();
      await log.update();
      next = ended(job.state) ? Date.now() + ENDED_MS : 0;
      failure.replaceChildren();
    } catch (e) {
      failure.replaceChildren(message(e.message));
      throw e;
    }
  }

  const save = () => download(`${titleOf(job)}-${id}.html`, jobPage(job, series, marks, log.all, events.all));
  const nothing = h("div", {class: "panel empty", hidden: true});
  const body = h("div", {hidden: true}, head, progress, why, list, seconds.element, h("div", {class: "job"}, h("div", {}, curves.bar, nothing, curves.element), h("section", {class: "panel side", "aria-label": "Details"}, choice, ...Object.values(panes))));
  content.append(failure, body);
  const end = poll(JOB_MS, async () => { if (Date.now() >= next) await update(); });
  return () => { end(); curves.close(); log.close(); document.title = "Trainyard"; };
}
