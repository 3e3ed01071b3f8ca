// Actions, each with one confirmation. The controller decides whether the user may do it.
import {call} from "./service.js";
import {h, message} from "./text.js";

const dialog = document.getElementById("dialog");

// title, text: what happens. field: {label, value} asks for a text. act(text) makes the call; its error is shown.
export function confirmed({title, text, field, danger}, act) {
  const failure = h("div"), input = field ? h("input", {id: "dialog-field", value: field.value || ""}) : null;
  const go = h("button", {type: "submit", class: danger ? "danger" : ""}, title);
  const form = h("form", {method: "dialog"}, h("h2", {id: "dialog-title"}, title), h("p", {}, text), failure,
    field ? h("p", {}, h("label", {for: "dialog-field"}, field.label + " "), input) : null,
    h("div", {class: "bar"}, h("span", {class: "fill"}), h("button", {type: "button", onclick: () => dialog.close()}, "Close"), go));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    go.disabled = true;
    try {
      await act(input ? input.value : "");
      dialog.close();
    } catch (e) {
      failure.replaceChildren(message(e.message));
      go.disabled = false;
    }
  });
  dialog.replaceChildren(form);
  dialog.showModal();
}

const again = () => crypto.randomUUID();

const ACTIONS = [
  {title: "Pause", method: "PauseJob", text: "The ranks finish the current step and write a checkpoint. The job then uses no slots.",
    states: ["QUEUED", "STARTING", "RUNNING", "RESTARTING", "PREEMPTING"]},
  {title: "Resume", method: "ResumeJob", text: "The job is queued again and continues from its newest checkpoint.", states: ["PAUSED"]},
  {title: "Retry", method: "RetryJob", text: "The job is queued again and continues from its newest checkpoint.", states: ["FAILED"]},
  {title: "Cancel", method: "CancelJob", text: "The job ends, and cannot be continued.", danger: true,
    states: ["QUEUED", "STARTING", "RUNNING", "RESTARTING", "PREEMPTING", "PAUSING", "PAUSED"]},
];

// Buttons for what can be done in the job's state. done() is called after a call that succeeded.
export function jobButtons(job, done) {
  return ACTIONS.filter((a) => a.states.includes(job.state)).map((a) => h("button", {type: "button", class: a.danger ? "danger" : "",
    onclick: () => {
      const request_id = again();
      confirmed(a, async () => { await call("JobService/" + a.method, {name: job.name, request_id}); done(); });
    }}, a.title + " job"));
}
