// Executors with their slots and GPUs, and queues: a page, and a part of the overview.
import {call, callAll, poll} from "./service.js";
import {h, idOf, titleOf, agoText, timeText, numberText, bytesText, stateBadge, message} from "./text.js";
import {drainButton} from "./actions.js";

const HOSTS_MS = 2000, GPU_MS = 4000, GPU_JOBS = 64, SLOTS = 256, IDLE = 0.01;
const PLACED = ["RUNNING", "STARTING", "PREEMPTING", "PAUSING", "CANCELLING"], GONE = ["LOST", "DISCONNECTED"];
const LIVE = ["device_utilization", "device_memory_bytes", "device_power_watts", "device_temperature_celsius"];

// What the ranks on GPUs last measured, by executor: [{job, title, rank, device_utilization, ...}]. `partial`: there are
// more jobs.
async function gpuReadings() {
  const lists = await callAll("JobService/ListJobs", PLACED.map((state) => ({state, page_size: 200})));
  const all = lists.flatMap((l) => l.jobs).filter((job) => job.spec?.resources?.accelerator === "cuda"), running = all.slice(0, GPU_JOBS), byHost = new Map();
  byHost.partial = all.length > GPU_JOBS || lists.some((l) => l.next_page_token);
  const [whole, measured] = await Promise.all([callAll("JobService/GetJob", running.map(({name}) => ({name}))), callAll("MetricService/QueryMetrics", running.map(({name}) => ({job: name, names: LIVE, max_points: 1})))]);
  whole.forEach((job, i) => {
    for (const p of job.attempts[job.attempts.length - 1]?.placements || []) {
      if (!byHost.has(p.executor)) byHost.set(p.executor, []);
      byHost.get(p.executor).push({job: job.name, title: titleOf(job), rank: p.rank, ...Object.fromEntries(measured[i].series.filter((s) => s.rank === p.rank).map((s) => [s.name, s.last_value]))});
    }
  });
  return byHost;
}

function slots(executor) {
  const boxes = Array.from({length: Math.min(executor.slots, SLOTS)}, (_, i) => h("span", {class: i < executor.slots_used ? "slot used" : "slot"}));
  return h("div", {class: "slots", role: "img", "aria-label": `${executor.slots_used} of ${executor.slots} slots are in use`}, boxes, executor.slots > SLOTS ? ` and ${executor.slots - SLOTS} more` : "");
}

const measurements = (r) => [r.device_memory_bytes !== undefined ? bytesText(r.device_memory_bytes) : null, r.device_power_watts !== undefined ? `${Math.round(r.device_power_watts)} W` : null, r.device_temperature_celsius !== undefined ? `${Math.round(r.device_temperature_celsius)} °C` : null].filter(Boolean).map((text) => text.replace(" ", "\u00a0")).join(" · ");

// Its state is a word, not only a colour. reading: of the rank that has the GPU; null: it is free; undefined: not known.
function gpuTile(device, reading, state) {
  const tile = (kind, first, ...more) => h("li", {class: `gpu ${kind}`, title: device.model}, first, more), name = h("b", {}, `GPU ${device.index}`);
  if (device.state === "QUARANTINED") return tile("out", name, " quarantined", h("div", {}, device.reason));
  if (GONE.includes(state)) return tile("lost", name, " not reachable", h("div", {}, `host ${state.toLowerCase()}`));
  if (!reading) return tile(reading === null ? "free" : "lost", name, reading === null ? " free" : " not known", h("div", {}, Number(device.memory_bytes) ? bytesText(device.memory_bytes) : device.model));
  const part = Number(reading.device_utilization), whose = [h("a", {href: `#/jobs/${idOf(reading.job)}`}, reading.title), reading.rank ? ` rank\u00a0${reading.rank}` : ""];
  if (!Number.isFinite(part)) return tile("silent", h("b", {}, "In use"), " ", whose, h("div", {class: "dim"}, measurements(reading) || "no samples yet"));
  const fill = h("i"), idle = part < IDLE;
  fill.style.width = `${100 * part}%`;
  return tile(idle ? "idle" : "busy", idle ? null : fill, h("b", {}, `${Math.round(100 * part)}% `, idle ? "idle" : h("span", {class: "hidden"}, "busy")), " ", whose, h("div", {class: "dim"}, measurements(reading)));
}

// Ranks are not told apart by device: the tiles in use come first.
function gpus(executor, readings, title) {
  const all = executor.devices.filter((d) => d.kind === "cuda"), mine = readings.get(executor.name) || [], free = readings.partial ? undefined : null;
  if (!all.length) return null;
  let used = 0;
  return h("ul", {class: "gpus", "aria-label": `GPUs of ${title}`}, all.map((d) => gpuTile(d, d.state === "QUARANTINED" ? null : mine[used++] ?? free, executor.state)));
}

// Executors of one host are told apart by the beginnings of their ids.
const hostTitle = (executor, all) => executor.hostname ? executor.hostname + (all.filter((e) => e.hostname === executor.hostname).length > 1 ? ` ${idOf(executor.name).slice(-6)}` : "") : idOf(executor.name);

// A host in the overview: whole is false.
function host(executor, all, readings, whole, done) {
  const same = hostTitle(executor, all), cuda = executor.devices.some((d) => d.kind === "cuda");
  const head = h("div", {class: whole ? "bar" : "top bar"}, h("h2", {title: executor.name}, same, whole ? null : h("span", {class: "hidden"}, executor.state)), executor.state === "ATTACHED" && !whole ? null : stateBadge(executor.state), h("span", {class: "fill"}),
    whole ? drainButton(executor, same, done) : h("small", {class: "dim"}, `${executor.slots_used} of ${executor.slots}`));
  return h("section", {class: whole ? "panel host" : "host"}, head, whole ? h("p", {class: "dim"}, `${executor.slots_used} of ${executor.slots} slots in use · ${executor.cores} cores`) : null, cuda && !whole ? null : slots(executor), gpus(executor, readings, same),
    whole ? h("p", {class: "dim"}, h("small", {}, [executor.devices.find((d) => d.kind === "cuda")?.model, `version ${executor.version}`, `heartbeat ${agoText(executor.heartbeat_time)}`, idOf(executor.name)].filter(Boolean).join(" · "))) : null,
    executor.drain ? message(`Drained by ${executor.drain.requester || "a user"}: ${executor.drain.reason || "no reason given"}`, true) : null,
    whole && executor.fault ? message(`It failed ${executor.fault.jobs} ${executor.fault.jobs === 1 ? "job" : "jobs"}, last ${timeText(executor.fault.time)}: ${executor.fault.reason}`, true) : null,
    whole && executor.reason ? h("p", {class: "dim"}, h("small", {}, executor.reason)) : null);
}

function queueTable(queues) {
  if (!queues.length) return h("p", {class: "dim"}, "No job waits or runs.");
  return h("table", {}, h("thead", {}, h("tr", {}, h("th", {scope: "col"}, "Queue"), ["Waiting", "Running", "Paused", "Slots"].map((t) => h("th", {scope: "col", class: "number"}, t)))),
    h("tbody", {}, queues.map((q) => h("tr", {}, h("th", {scope: "row"}, q.name), [q.waiting, q.running, q.paused, Number(q.cpu_slots_used) + Number(q.cuda_slots_used)].map((n) => h("td", {class: "number"}, numberText(n)))))));
}

// Keeps hosts and queues up to date. shown({executors, queues, readings}, changed) is called after each reading.
export function watchHosts(shown, failed) {
  let readings = new Map(), read = 0, key = "";
  return poll(HOSTS_MS, async () => {
    try {
      const [{executors}, {queues}] = await Promise.all([call("ExecutorService/ListExecutors", {page_size: 1000}), call("QueueService/ListQueues", {page_size: 100})]);
      if (executors.some((e) => e.devices.some((d) => d.kind === "cuda") && e.slots_used) && Date.now() - read > GPU_MS) {
        read = Date.now();
        readings = await gpuReadings();
      }
      const now = JSON.stringify([executors.map((e) => ({...e, heartbeat_time: ""})), queues, [...readings]]);
      if (now !== key) shown({executors, queues, readings});
      key = now;
      failed("");
    } catch (e) {
      failed(e.message);
      throw e;
    }
  });
}

const totals = (executors) => executors.reduce((t, e) => ({slots: t.slots + e.slots, used: t.used + e.slots_used}), {slots: 0, used: 0});

// The rail of the overview: at most `most` hosts, those in use first.
export function hostRail(most = 24) {
  const hosts = h("section", {class: "panel", "aria-label": "Hosts"}, h("h2", {}, "Hosts")), queues = h("section", {class: "panel", "aria-label": "Queues"}, h("h2", {}, "Queues"));
  const rail = h("aside", {class: "rail", "aria-label": "Hosts and queues"}, hosts, queues);
  rail.update = (now) => {
    const t = totals(now.executors), sorted = [...now.executors].sort((a, b) => b.slots_used - a.slots_used);
    hosts.replaceChildren(h("div", {class: "bar"}, h("h2", {}, h("a", {href: "#/hosts"}, "Hosts")), h("span", {class: "fill"}), h("small", {class: "dim"}, `${t.used} of ${t.slots} slots in use`)),
      ...(sorted.length ? sorted.slice(0, most).map((e) => host(e, sorted, now.readings, false)) : [h("p", {class: "dim"}, "No executor is attached.")]), sorted.length > most ? h("p", {class: "dim"}, `${sorted.length - most} more`) : "");
    queues.replaceChildren(h("h2", {}, "Queues"), queueTable(now.queues));
  };
  return rail;
}

export function showHosts(content) {
  const failure = h("div"), grid = h("div", {class: "hosts"}), queues = h("section", {class: "panel"}, h("h2", {}, "Queues")), tiles = h("div", {class: "tiles"});
  const end = watchHosts(({executors, queues: all, readings}) => {
    const t = totals(executors), cuda = executors.flatMap((e) => e.devices.filter((d) => d.kind === "cuda"));
    tiles.replaceChildren(...[["Hosts", executors.length, ""], ["Slots in use", t.used, ` of ${t.slots}`], ["GPUs", cuda.length, ""], ["Quarantined", cuda.filter((d) => d.state === "QUARANTINED").length, ""]]
      .filter(([name, n], i) => i < 2 || cuda.length).map(([name, n, more]) => h("div", {}, h("span", {class: "dim"}, name), h("b", {}, numberText(n), h("small", {}, more)))));
    grid.replaceChildren(...executors.map((e) => host(e, executors, readings, true, () => end.now())));
    if (!executors.length) grid.replaceChildren(h("div", {class: "empty"}, h("h2", {}, "No executor is attached"), h("p", {}, "Start ", h("code", {}, "trainyard-executor"), " on a host: docs/operate.md says how.")));
    queues.replaceChildren(h("h2", {}, "Queues"), queueTable(all));
  }, (text) => failure.replaceChildren(message(text) || ""));
  content.append(h("div", {class: "bar"}, h("h1", {}, "Hosts")), failure, tiles, grid, queues);
  return end;
}
