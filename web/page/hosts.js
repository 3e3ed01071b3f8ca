// Executors with their slots and GPUs, and queues.
import {call, poll} from "./service.js";
import {h, idOf, timeText, numberText, stateBadge, message} from "./text.js";
import {confirmed} from "./actions.js";

const HOSTS_MS = 2000;

function slots(executor) {
  const boxes = [];
  for (let i = 0; i < Math.min(executor.slots, 256); i++)
    boxes.push(h("span", {class: i < executor.slots_used ? "slot used" : "slot", title: i < executor.slots_used ? "in use" : "free"}, ""));
  for (const d of executor.devices.filter((d) => d.kind === "cuda" && d.state === "QUARANTINED"))
    boxes.push(h("span", {class: "slot out", title: `${d.model}: ${d.reason}`}, "!"));
  return h("div", {class: "slots", role: "img", "aria-label": `${executor.slots_used} of ${executor.slots} slots are in use`}, boxes);
}

function devices(executor) {
  const gpus = executor.devices.filter((d) => d.kind === "cuda");
  return gpus.length ? h("p", {class: "dim"}, gpus.map((d) => d.model).join(", ")) : null;
}

function drainButton(executor, done) {
  const drained = executor.drain !== undefined;
  return h("button", {type: "button", onclick: () => confirmed(drained
    ? {title: "Undrain", text: "The executor gets ranks again."}
    : {title: "Drain", text: "The executor gets no more ranks. Running ranks continue to their end.", field: {label: "Reason"}},
  async (reason) => {
    await call(`ExecutorService/${drained ? "Undrain" : "Drain"}Executor`, drained ? {name: executor.name} : {name: executor.name, reason});
    done();
  })}, drained ? "Undrain" : "Drain");
}

function host(executor, done) {
  return h("section", {class: "panel"}, h("div", {class: "bar"}, h("h2", {}, executor.hostname || idOf(executor.name)), stateBadge(executor.state), h("span", {class: "fill"}), drainButton(executor, done)),
    slots(executor), h("p", {class: "dim"}, `${executor.slots_used} of ${executor.slots} slots in use, ${executor.cores} cores, version ${executor.version}`), devices(executor),
    h("p", {class: "dim"}, `last heartbeat ${timeText(executor.heartbeat_time)}`),
    executor.drain ? h("p", {}, `Drained by ${executor.drain.requester || "a user"}: ${executor.drain.reason || "no reason given"}`) : null,
    executor.fault ? h("p", {}, `It failed ${executor.fault.jobs} ${executor.fault.jobs === 1 ? "job" : "jobs"}: ${executor.fault.reason}`) : null,
    executor.reason ? h("p", {class: "dim"}, executor.reason) : null);
}

export function showHosts(content) {
  const failure = h("div"), grid = h("div", {class: "hosts"}), queues = h("tbody"), count = h("span", {class: "dim", role: "status"});
  let shown = "";

  async function update() {
    try {
      const [hosts, waiting] = await Promise.all([call("ExecutorService/ListExecutors", {page_size: 1000}), call("QueueService/ListQueues", {page_size: 100})]);
      const key = JSON.stringify([hosts, waiting]);
      if (key !== shown) {
        shown = key;
        count.textContent = `${hosts.executors.length} ${hosts.executors.length === 1 ? "executor" : "executors"}`;
        grid.replaceChildren(...hosts.executors.map((e) => host(e, update)));
        queues.replaceChildren(...waiting.queues.map((q) => h("tr", {}, h("th", {scope: "row"}, q.name), [q.waiting, q.running, q.paused, q.cpu_slots_used, q.cuda_slots_used].map((n) => h("td", {class: "number"}, numberText(n))))));
      }
      failure.replaceChildren();
    } catch (e) {
      failure.replaceChildren(message(e.message));
      throw e;
    }
  }

  content.append(h("div", {class: "bar"}, h("h1", {}, "Hosts"), count), failure, grid, h("h2", {}, "Queues"),
    h("div", {class: "scroll"}, h("table", {}, h("thead", {}, h("tr", {}, ["Queue", "Waiting", "Running", "Paused", "CPU slots", "GPU slots"].map((t) => h("th", {scope: "col"}, t)))), queues)));
  return poll(HOSTS_MS, update);
}
