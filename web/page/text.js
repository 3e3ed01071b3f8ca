// Elements and texts. Texts of the service become text nodes, never markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(e, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else if (value === true) e.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) e.setAttribute(name, value);
  }
  for (const child of children.flat(3)) if (child !== null && child !== undefined && child !== false) e.append(child);
  return e;
}

export const h = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

export const idOf = (name) => name.slice(name.indexOf("/") + 1);
export const titleOf = (job) => job.display_name || job.name;
export const stepsOf = (job) => Number(job.spec?.train?.steps || 0);

export function numberText(value) {
  if (value === undefined || value === null || value === "") return "";
  if (typeof value === "string") value = Number(value);
  if (!Number.isFinite(value)) return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return value.toLocaleString("en");
  const size = Math.abs(value);
  return size >= 1e5 || size < 1e-3 ? value.toExponential(3) : String(Number(value.toPrecision(5)));
}

// At most four characters and a unit, for axes and columns: 12.5k, 2e-4.
export function shortText(value) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  for (const [unit, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]])
    if (size >= unit * 0.99995 && (unit > 1e3 || size >= 1e4)) return Number((value / unit).toPrecision(4)) + letter;
  return size < 1e-3 ? value.toExponential(2).replace(/\.?0*e/, "e") : String(Number(value.toPrecision(4)));
}

export function bytesText(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = Number(n), unit = 0;
  while (Math.abs(value) >= 1024 && unit < units.length - 1) { value /= 1024; unit++; }
  return `${Math.abs(value) >= 100 || unit === 0 ? value.toFixed(0) : Number(value.toFixed(1))} ${units[unit]}`;
}

export function secondsText(s) {
  const size = Math.abs(s);
  if (size >= 100 || size === 0) return `${shortText(s)} s`;
  return size >= 1 ? `${Number(s.toPrecision(4))} s` : size >= 1e-3 ? `${Number((s * 1e3).toPrecision(4))} ms` : `${Number((s * 1e6).toPrecision(3))} µs`;
}

// The text of a metric's value: the unit is a part of the metric's name.
export function metricText(name) {
  if (/_bytes$/.test(name)) return bytesText;
  if (/_seconds$/.test(name)) return secondsText;
  if (/(^|_)(mfu|utilization)$/.test(name)) return (v) => `${Number((v * 100).toPrecision(3))}%`;
  if (/_watts$/.test(name)) return (v) => `${shortText(v)} W`;
  if (/_celsius$/.test(name)) return (v) => `${shortText(v)} °C`;
  return shortText;
}

export function durationText(seconds) {
  if (!Number.isFinite(seconds) || seconds < 0) return "";
  const s = Math.round(seconds), m = Math.floor(s / 60), hours = Math.floor(m / 60), days = Math.floor(hours / 24);
  if (days) return `${days} d ${hours % 24} h`;
  if (hours) return `${hours} h ${m % 60} min`;
  return m ? `${m} min ${s % 60} s` : `${s} s`;
}

// With the zone, because hosts and users may be in different ones.
const WHOLE = new Intl.DateTimeFormat("en-GB", {year: "numeric", month: "short", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short"});
const CLOCK = new Intl.DateTimeFormat("en-GB", {hour: "2-digit", minute: "2-digit", second: "2-digit"});
export const timeText = (timestamp) => timestamp ? WHOLE.format(new Date(timestamp)) : "";
export const clockText = (timestamp) => timestamp ? CLOCK.format(new Date(timestamp)) : "";

export function agoText(timestamp) {
  const s = Math.max(0, (Date.now() - Date.parse(timestamp)) / 1000);
  if (s < 60) return "now";
  if (s < 3600) return `${Math.floor(s / 60)} min ago`;
  return s < 86400 ? `${Math.floor(s / 3600)} h ago` : `${Math.floor(s / 86400)} d ago`;
}

// Text with `code` between backticks.
export const prose = (text) => text.split("`").map((part, i) => i % 2 ? h("code", {}, part) : part);

export const stateBadge = (state) => h("span", {class: `badge ${state}`}, h("span", {class: "dot"}), h("span", {class: "state"}, state));

export const ended = (state) => state === "SUCCEEDED" || state === "FAILED" || state === "CANCELLED";
export const waits = (state) => state === "QUEUED" || state === "STARTING" || state === "RESTARTING";

export function message(text, note) { return text ? h("p", {class: note ? "message note" : "message", role: note ? null : "alert"}, text) : null; }

export function meter(job) {
  const steps = stepsOf(job), bar = h("i"), part = steps ? Math.min(1, Number(job.step) / steps) : 0;
  bar.style.width = `${100 * part}%`;
  return steps ? h("div", {class: `meter ${job.state}`, role: "progressbar", "aria-label": "Steps", "aria-valuenow": Math.round(100 * part), "aria-valuemin": 0, "aria-valuemax": 100}, bar) : null;
}

// Buttons of which one is pressed. choices: [[value, text]]. changed(value).
export function tabs(label, choices, value, changed) {
  const group = h("div", {class: "tabs", role: "group", "aria-label": label});
  const buttons = choices.map(([key, text]) => h("button", {type: "button", "data-value": key, "aria-pressed": String(key === value), onclick: () => { group.value = key; changed(key); }}, text));
  Object.defineProperty(group, "value", {get: () => value, set: (key) => {
    value = key;
    for (const b of buttons) b.setAttribute("aria-pressed", String(b.dataset.value === key));
  }});
  group.append(...buttons);
  return group;
}

export function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], {type: "text/html"}));
  h("a", {href: url, download: name}).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
