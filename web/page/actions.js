// Actions, each with one confirmation. The controller decides whether the user may do it.
import {call} from "./service.js";
import {h, numberText, message} from "./text.js";

const dialog = document.getElementById("dialog");

// What a refusal means for the user: the controller's sentence names the role.
export function failureText(e) {
  return e.status === "PERMISSION_DENIED" ? `You may not do this: ${e.message}. Ask an administrator of this service for a token with that role.` : e.message;
}

function show(title, ...content) {
  dialog.replaceChildren(h("h2", {id: "dialog-title"}, title), ...content);
  if (!dialog.open) dialog.showModal();
}

const closeButton = (text = "Close") => h("button", {type: "button", onclick: () => dialog.close()}, text);

// title, text: what happens. fields: [{name, label, type, value}]. act(values) makes the call; its error is shown. done
// is called after the dialog has closed.
export function confirmed({title, text, fields = [], danger}, act, done) {
  const failure = h("div"), inputs = fields.map((f) => h("input", {id: `dialog-${f.name}`, type: f.type || "text", value: f.value ?? ""}));
  const go = h("button", {type: "submit", class: danger ? "danger" : "first"}, title);
  const form = h("form", {}, h("p", {}, text), fields.map((f, i) => f.type === "checkbox" ? h("p", {}, h("label", {}, inputs[i], f.label)) : h("div", {class: "field"}, h("label", {for: inputs[i].id}, f.label), inputs[i])), failure,
    h("div", {class: "bar"}, h("span", {class: "fill"}), closeButton("Keep"), go));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    go.disabled = true;
    try {
      await act(Object.fromEntries(fields.map((f, i) => [f.name, f.type === "checkbox" ? inputs[i].checked : inputs[i].value])));
      dialog.close();
      done?.();
    } catch (e) {
      failure.replaceChildren(message(failureText(e)));
      go.disabled = false;
    }
  });
  show(title, form);
}

// Text that a model generates from a checkpoint.
export function sampleFrom(name, title) {
  const prompt = h("input", {id: "sample-prompt", value: ""}), tokens = h("input", {id: "sample-tokens", type: "number", min: 1, max: 2000, value: 200}), heat = h("input", {id: "sample-heat", type: "number", min: 0, max: 5, step: 0.1, value: 0.8});
  const failure = h("div"), text = h("pre", {class: "text", tabindex: 0, "aria-label": "Generated text", hidden: true}), go = h("button", {type: "submit", class: "first"}, "Sample");
  const form = h("form", {}, h("p", {class: "dim"}, "An executor generates text from the checkpoint. It uses no slot."),
    [["Prompt", prompt], ["Tokens", tokens], ["Temperature", heat]].map(([label, input]) => h("div", {class: "field"}, h("label", {for: input.id}, label), input)), failure, text, h("div", {class: "bar"}, h("span", {class: "fill"}), closeButton(), go));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    go.disabled = true;
    failure.replaceChildren();
    try {
      const answer = await call("CheckpointService/Sample", {name, prompt: prompt.value, tokens: Number(tokens.value), temperature: Number(heat.value), seed: String(Date.now() % 1e9)});
      text.hidden = false;
      text.textContent = prompt.value + answer.messages.map((m) => m.text).join("");
    } catch (e) { failure.replaceChildren(message(failureText(e))); }
    go.disabled = false;
  });
  show(`Sample from ${title}`, form);
}

export function showKeys(rows) {
  show("Keys", h("dl", {class: "keys"}, rows.map(([keys, what]) => [h("dt", {}, keys.map((k) => [h("kbd", {}, k), " "])), h("dd", {}, what)])), h("div", {class: "bar"}, h("span", {class: "fill"}), closeButton()));
}

const ACTIONS = [
  {title: "Pause job", method: "PauseJob", text: "The ranks finish the current step and write a checkpoint. The job then uses no slots.",
    states: ["QUEUED", "STARTING", "RUNNING", "RESTARTING", "PREEMPTING"]},
  {title: "Resume job", method: "ResumeJob", text: "The job is queued again and continues from its newest checkpoint.", states: ["PAUSED"]},
  {title: "Retry job", method: "RetryJob", text: "The job is queued again and continues from its newest checkpoint.", states: ["FAILED"]},
  {title: "Cancel job", method: "CancelJob", text: "The job ends, and cannot be continued. Its metrics, log and checkpoints stay.", danger: true,
    states: ["QUEUED", "STARTING", "RUNNING", "RESTARTING", "PREEMPTING", "PAUSING", "PAUSED"]},
];

// Buttons for what can be done in the job's state. done() is called after a call that succeeded.
export function jobButtons(job, done) {
  return ACTIONS.filter((a) => a.states.includes(job.state)).map((a) => h("button", {type: "button", class: a.danger ? "danger" : "",
    onclick: () => {
      const request_id = crypto.randomUUID(); // the same for a repeated click
      confirmed(a, () => call("JobService/" + a.method, {name: job.name, request_id}), done);
    }}, a.title));
}

export function pinButton(checkpoint, done) {
  const {name, pinned, step} = checkpoint;
  return h("button", {type: "button", class: "plain", "aria-label": `${pinned ? "Unpin" : "Pin"} the checkpoint of step ${step}`, onclick: () => confirmed(pinned
    ? {title: "Unpin", text: `The checkpoint of step ${numberText(step)} may be deleted when there are newer ones.`}
    : {title: "Pin", text: `The checkpoint of step ${numberText(step)} is kept until it is unpinned.`},
  () => call("CheckpointService/PinCheckpoint", {name, pinned: !pinned}), done)}, pinned ? "Unpin" : "Pin");
}

export function drainButton(executor, title, done) {
  const drained = executor.drain !== undefined && executor.drain !== null;
  return h("button", {type: "button", "aria-label": `${drained ? "Undrain" : "Drain"} ${title}`, onclick: () => confirmed(drained
    ? {title: "Undrain", text: `${title} gets ranks again.`}
    : {title: "Drain", text: `${title} gets no more ranks. Running ranks continue to their end.`,
      fields: [{name: "reason", label: "Reason"}, {name: "now", label: "Now: running ranks write a checkpoint and continue elsewhere", type: "checkbox"}]},
  ({reason, now}) => call(`ExecutorService/${drained ? "Undrain" : "Drain"}Executor`, drained ? {name: executor.name} : {name: executor.name, reason, now}), done)}, drained ? "Undrain" : "Drain");
}
