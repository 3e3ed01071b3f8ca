// Calls of the controller. A call is a POST to this page's own server, with JSON in the form of proto3, or with several
// requests of one method, each on a line.
import {askToken, tokenOf} from "./token.js";

const CALLS = 4, AT_ONCE = 64; // the server takes no more requests in one call

export class ServiceError extends Error {
  constructor(status, message, reason) { super(message); this.status = status; this.reason = reason; }
}

// The address that the user opens ends in #key=...; only pages of this port can read the storage.
export function takeKey() {
  const given = location.hash.match(/^#key=([0-9a-f]+)$/);
  if (!given) return;
  localStorage.setItem("key", given[1]);
  history.replaceState(null, "", "#/");
}

const listeners = new Set();
let shown = "";

// The listener gets "" when calls succeed again, else a sentence.
export function onConnection(listener) { listeners.add(listener); }

function connection(sentence) {
  if (shown === sentence) return;
  shown = sentence;
  for (const listener of listeners) listener(sentence);
}

// What a failed call says of all calls; "": nothing.
function outage(e, code) {
  if (e.status === "UNAUTHENTICATED") return `The controller does not accept your token: ${e.message}. Get a new one, then run \`trainyard dashboard\` again.`;
  if (e.status === "UNAVAILABLE" || e.status === "DEADLINE_EXCEEDED") return `The controller does not answer; the page keeps trying. ${e.message}`;
  return code === 403 && e.message.includes("trainyard dashboard") ? e.message : "";
}

// request: a message, or an array of them: then the reply is an array.
export async function call(method, request = {}) {
  const token = tokenOf(), type = Array.isArray(request) ? "application/x-ndjson" : "application/json";
  let answer, body;
  try {
    answer = await fetch("api/" + method, {
      method: "POST", headers: {"Content-Type": type, "X-Trainyard-Key": localStorage.getItem("key") || "", ...token && {Authorization: "Bearer " + token}}, body: [request].flat().map((r) => JSON.stringify(r)).join("\n"),
    });
    body = await answer.text();
  } catch {
    connection(token ? "The controller cannot be reached; the page keeps trying." : "This page's server has ended: run `trainyard dashboard` again.");
    throw new ServiceError("UNAVAILABLE", "this page's server cannot be reached", "");
  }
  if (answer.ok) {
    connection("");
    return JSON.parse(body);
  }
  let e;
  try { e = JSON.parse(body); } catch { e = {status: "PERMISSION_DENIED", message: body.trim(), reason: ""}; }
  if (answer.status === 401 && answer.headers.has("WWW-Authenticate")) { // served by a controller
    if (token === tokenOf()) await askToken(e.message);
    return call(method, request);
  }
  connection(outage(e, answer.status));
  throw new ServiceError(e.status, e.message, e.reason);
}

// The replies to all requests, in a few calls at a time: a browser spends more time on a call than the controller.
export async function callAll(method, requests) {
  const n = Math.min(AT_ONCE, Math.ceil(requests.length / CALLS)), parts = [];
  for (let i = 0; i < requests.length; i += n) parts.push(call(method, requests.slice(i, i + n)));
  return (await Promise.all(parts)).flat();
}

// Repeats `work` every `ms` while the page is visible, and never twice at a time. Returns a function that ends it; it
// has `now`, which makes the next turn at once.
export function poll(ms, work) {
  let ended = false, timer = 0, busy = false;
  const turn = async () => {
    clearTimeout(timer);
    if (ended || busy) return;
    busy = true;
    if (!document.hidden) { try { await work(); } catch (e) { if (!(e instanceof ServiceError)) throw e; } }
    busy = false;
    if (!ended) timer = setTimeout(turn, ms);
  };
  const shown = () => { if (!document.hidden) turn(); };
  document.addEventListener("visibilitychange", shown);
  const end = () => { ended = true; clearTimeout(timer); document.removeEventListener("visibilitychange", shown); };
  end.now = turn;
  turn();
  return end;
}
