// A new job: a form of the spec, what the controller says of it while the user types, and the plan of the job.
import {call} from "./service.js";
import {h, idOf, numberText, message} from "./text.js";
import {SpecForm} from "./spec_form.js";
import {colourOf} from "./chart.js";

const TYPING_MS = 500;

const bytesText = (n) => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = Number(n), unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit++; }
  return `${value >= 100 || unit === 0 ? value.toFixed(0) : value.toFixed(1)} ${units[unit]}`;
};

// Memory of each stage's largest rank, a bar of its families.
function memoryBars(plan) {
  const most = Number(plan.most_bytes) || 1, names = [];
  const rows = plan.memory.map((rank) => {
    const bar = h("div", {class: "stack", role: "img", "aria-label": `stage ${rank.stage}: ${rank.families.map((f) => `${f.name} ${bytesText(f.bytes)}`).join(", ")}`});
    for (const family of rank.families) {
      if (!names.includes(family.name)) names.push(family.name);
      const part = h("span", {title: `${family.name}: ${bytesText(family.bytes)}`});
      part.style.width = `${100 * Number(family.bytes) / most}%`;
      part.style.background = colourOf(names.indexOf(family.name));
      bar.append(part);
    }
    return h("div", {}, h("small", {class: "dim"}, `stage ${rank.stage}, rank ${rank.rank}: ${bytesText(rank.bytes)}`), bar);
  });
  const legend = h("div", {class: "legend-line"}, names.map((name, i) => {
    const swatch = h("span", {class: "swatch"});
    swatch.style.background = colourOf(i);
    return h("span", {}, swatch, name);
  }));
  return [h("h3", {}, "Memory of one rank"), rows, legend];
}

// How each stage spends a step.
function stageBars(plan) {
  if (plan.stages.length < 2) return [];
  return [h("h3", {}, "Time of a step by stage"), plan.stages.map((s) => {
    const parts = [["computes", s.busy_seconds, "--busy"], ["waits for the pipeline", s.pipeline_wait_seconds, "--warn"], ["waits for data ranks", s.data_wait_seconds, "--idle"]];
    const bar = h("div", {class: "stack", role: "img", "aria-label": `stage ${s.stage}: ${parts.map(([n, v]) => `${n} ${numberText(v)} s`).join(", ")}`});
    for (const [name, seconds, colour] of parts) {
      const part = h("span", {title: `${name}: ${numberText(seconds)} s`});
      part.style.width = `${100 * seconds / plan.step_seconds}%`;
      part.style.background = `var(${colour})`;
      bar.append(part);
    }
    return h("div", {}, h("small", {class: "dim"}, `stage ${s.stage}: ${s.blocks} blocks`), bar);
  })];
}

function planView(plan) {
  const rows = [["Ranks", `${plan.ranks} (data ${plan.data}, pipeline ${plan.pipeline}, zero ${plan.zero})`], ["Micro-batch", numberText(plan.micro_batch)],
    ["Parameters", numberText(plan.parameters)], ["Step", `${numberText(plan.step_seconds)} s on ${plan.device}`],
    ["Speed", plan.tokens_per_second ? `${numberText(plan.tokens_per_second)} tokens/s` : `${numberText(plan.samples_per_second)} samples/s`],
    ["Sent by one rank in a step", plan.wire.length ? bytesText(Math.max(...plan.wire.map((w) => Number(w.bytes)))) : "nothing"], ["Note", plan.note]];
  return [h("dl", {class: "facts"}, rows.filter(([, v]) => v).map(([n, v]) => h("div", {}, h("dt", {}, n), h("dd", {}, v)))), memoryBars(plan), stageBars(plan)].flat(3);
}

export function showNew(content, from) {
  const form = h("div", {class: "panel"}), findings = h("div", {role: "status"}), plan = h("div"), text = h("pre", {class: "spec", tabindex: "0", "aria-label": "The spec as JSON"});
  const fork = h("input", {"aria-label": "Fork of", placeholder: "jobs/42@300"}), submit = h("button", {type: "button", onclick: () => send()}, "Submit");
  let spec = {}, timer = 0, asked = 0;

  const request = () => ({spec, fork: fork.value.trim() || undefined, wait_for_hosts: true});

  async function validate() {
    const number = ++asked;
    text.textContent = JSON.stringify(spec, null, 2);
    let answer;
    try {
      answer = await call("JobService/ValidateJob", request());
    } catch (e) {
      if (number === asked) { findings.replaceChildren(message(e.message)); plan.replaceChildren(); }
      return;
    }
    if (number !== asked) return; // the user has typed on
    submit.disabled = answer.problems.length > 0;
    findings.replaceChildren(...(answer.problems.length ? answer.problems.map(message) : [h("p", {class: "state SUCCEEDED"}, "The spec is valid.")]),
      ...answer.unchecked.map((u) => h("p", {class: "dim"}, u)));
    plan.replaceChildren(...(answer.plan ? planView(answer.plan) : [h("p", {class: "dim"}, answer.plan_reason)]));
  }

  const changed = () => { clearTimeout(timer); timer = setTimeout(validate, TYPING_MS); };

  async function send() {
    submit.disabled = true;
    try {
      const job = await call("JobService/CreateJob", {...request(), request_id: crypto.randomUUID()});
      location.hash = `#/jobs/${idOf(job.name)}`;
    } catch (e) {
      findings.replaceChildren(message(e.message));
      submit.disabled = false;
    }
  }

  async function open() {
    const schema = await (await fetch("spec.schema.json")).json();
    if (from) {
      const job = await call("JobService/GetJob", {name: `jobs/${from.split("@")[0]}`});
      spec = job.spec;
      if (from.includes("@")) fork.value = `jobs/${from}`;
    } else {
      spec = {name: "", model: {}, data: {}, train: {}};
    }
    form.replaceChildren(new SpecForm(schema, spec, changed).element());
    await validate();
  }

  fork.addEventListener("input", changed);
  content.append(h("div", {class: "bar"}, h("h1", {}, "New job"), h("span", {class: "fill"}), h("label", {}, "Fork of ", fork), submit),
    h("div", {class: "split even"}, form, h("div", {class: "panel follow"}, h("h2", {}, "Check"), findings, h("h2", {}, "Plan"), plan, h("h2", {}, "Spec"), text)));
  open().catch((e) => findings.replaceChildren(message(e.message)));
  return () => clearTimeout(timer);
}
