// A new job: a form of the spec, what the controller says of it while the user types, and the plan of the job.
import {call} from "./service.js";
import {h, idOf, message, tabs} from "./text.js";
import {SpecForm} from "./spec_form.js";
import {schemaLoad} from "./spec_view.js";
import {planView} from "./plan.js";
import {failureText} from "./actions.js";

const TYPING_MS = 400;
const KINDS = {model: ["model", "data", "train", "parallel"], program: ["program"]};

export function showNew(content, from) {
  const form = h("div", {class: "panel"}), findings = h("div", {role: "status"}), plan = h("div"), text = h("pre", {class: "text", tabindex: 0, "aria-label": "The spec as JSON"});
  const fork = h("input", {id: "fork", placeholder: "jobs/42@300", size: 14}), submit = h("button", {type: "button", class: "first", disabled: true, onclick: () => send()}, "Submit");
  const kind = tabs("Kind of job", [["model", "Model"], ["program", "Program"]], "model", (key) => changeKind(key)), touched = new Set();
  let spec = {}, schema = null, timer = 0, asked = 0;
  let request_id = crypto.randomUUID();

  const request = () => ({spec, fork: fork.value.trim() || undefined, wait_for_hosts: true});
  const inputOf = (path) => [...form.querySelectorAll("[data-path]")].find((e) => e.dataset.path === path);

  // "train.steps: ..." belongs to the field train.steps.
  function problemView(problem) {
    const input = inputOf(problem.slice(0, Math.max(0, problem.indexOf(":"))));
    if (input && touched.has(input.dataset.path)) {
      input.setAttribute("aria-invalid", "true");
      input.parentNode.append(h("p", {class: "problem"}, problem.slice(problem.indexOf(":") + 2)));
    }
    return h("div", {class: "message"}, problem, input ? [" ", h("button", {type: "button", class: "plain", onclick: () => { const box = input.closest("details"); if (box) box.open = true; input.focus(); }}, "Go to the field")] : null);
  }

  async function validate() {
    const number = ++asked;
    text.textContent = JSON.stringify(spec, null, 2);
    let answer;
    if (!plan.firstChild) plan.append(h("p", {class: "dim"}, "An executor checks the spec…"));
    try {
      answer = await call("JobService/ValidateJob", request());
    } catch (e) {
      if (number === asked) { findings.replaceChildren(message(failureText(e))); plan.replaceChildren(); }
      return;
    }
    if (number !== asked) return; // the user has typed on
    for (const e of form.querySelectorAll(".problem")) e.remove();
    for (const e of form.querySelectorAll("[aria-invalid]")) e.removeAttribute("aria-invalid");
    submit.disabled = answer.problems.length > 0;
    findings.replaceChildren(...(answer.problems.length ? answer.problems.map(problemView) : [h("p", {class: "badge SUCCEEDED"}, h("span", {class: "dot"}), "The spec is valid.")]),
      ...answer.unchecked.map((u) => h("p", {class: "dim"}, u)));
    plan.replaceChildren(...(answer.plan ? planView(answer.plan) : [h("p", {class: "dim"}, answer.problems.length ? "The plan appears when the spec is valid." : spec.program ? "A program has no plan." : answer.plan_reason)]));
  }

  const changed = () => { clearTimeout(timer); timer = setTimeout(validate, TYPING_MS); };

  async function send() {
    submit.disabled = true;
    try {
      const job = await call("JobService/CreateJob", {...request(), request_id});
      location.hash = `#/jobs/${idOf(job.name)}`;
    } catch (e) {
      findings.replaceChildren(message(failureText(e)));
      if (e.status !== "UNAVAILABLE" && e.status !== "DEADLINE_EXCEEDED") request_id = crypto.randomUUID(); // else the job may exist: the next try makes no second one
      submit.disabled = false;
    }
  }

  function draw() {
    const other = KINDS[kind.value === "model" ? "program" : "model"], root = schema.$defs.JobSpec;
    const shown = {...schema, $defs: {...schema.$defs, JobSpec: {...root, properties: Object.fromEntries(Object.entries(root.properties).filter(([name]) => !other.includes(name)))}}};
    form.replaceChildren(new SpecForm(shown, spec, changed).element());
  }

  function changeKind(key) {
    for (const name of KINDS[key === "model" ? "program" : "model"]) delete spec[name];
    for (const name of key === "model" ? ["model", "data", "train"] : ["program"]) spec[name] ??= {};
    draw();
    changed();
  }

  async function open() {
    schema = await schemaLoad();
    if (from) {
      const job = await call("JobService/GetJob", {name: `jobs/${from.split("@")[0]}`});
      spec = job.spec;
      kind.value = spec.program ? "program" : "model";
      delete spec.train?.changed_data; // the job's own wish, which a fork has to repeat
      if (from.includes("@")) fork.value = `jobs/${from}`;
    } else {
      spec = {name: "", model: {}, data: {}, train: {}};
    }
    draw();
    await validate();
  }

  form.addEventListener("input", (e) => { if (e.target.dataset.path) touched.add(e.target.dataset.path); });
  fork.addEventListener("input", changed);
  content.append(h("div", {class: "bar"}, h("h1", {}, from ? (from.includes("@") ? "Fork a job" : "New job like another") : "New job"), kind, h("span", {class: "fill"}), h("label", {for: "fork"}, "Fork of"), fork, submit),
    h("div", {class: "new"}, form, h("div", {class: "panel follow", tabindex: 0, role: "region", "aria-label": "Check and plan"}, h("h2", {}, "Check"), findings, h("h2", {class: "group"}, "Plan"), plan, h("details", {}, h("summary", {}, "Spec as JSON"), text))));
  open().catch((e) => findings.replaceChildren(message(failureText(e))));
  return () => clearTimeout(timer);
}
