// Elements and texts. Texts of the service become text nodes, never markup.

export function h(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else if (name === "class") e.className = value;
    else if (value === true) e.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) e.setAttribute(name, value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) e.append(child);
  return e;
}

export const idOf = (name) => name.slice(name.indexOf("/") + 1);
export const titleOf = (job) => job.display_name || job.name;

export function numberText(value) {
  if (value === undefined || value === null) return "";
  if (typeof value === "string") value = Number(value);
  if (!Number.isFinite(value)) return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return value.toLocaleString("en");
  const size = Math.abs(value);
  return size >= 1e5 || size < 1e-3 ? value.toExponential(3) : String(Number(value.toPrecision(5)));
}

export function durationText(seconds) {
  if (!Number.isFinite(seconds) || seconds < 0) return "";
  const s = Math.round(seconds), m = Math.floor(s / 60), hours = Math.floor(m / 60), days = Math.floor(hours / 24);
  if (days) return `${days} d ${hours % 24} h`;
  if (hours) return `${hours} h ${m % 60} min`;
  return m ? `${m} min ${s % 60} s` : `${s} s`;
}

// With the zone, because hosts and users may be in different ones.
export function timeText(timestamp) {
  if (!timestamp) return "";
  return new Date(timestamp).toLocaleString("en-GB", {
    year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
    timeZoneName: "short",
  });
}

export const stateBadge = (state) => h("span", {class: "state " + state}, state);

export const ended = (state) => state === "SUCCEEDED" || state === "FAILED" || state === "CANCELLED";

export function message(text) { return text ? h("p", {class: "message", role: "alert"}, text) : null; }
