// Calls of the controller. A call is a POST to this page's own server, with JSON in the form of proto3.

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
let reachable = true;

// The listener gets "" when calls succeed again, else a sentence.
export function onConnection(listener) { listeners.add(listener); }

function connection(sentence) {
  if (reachable === !sentence) return;
  reachable = !sentence;
  for (const listener of listeners) listener(sentence);
}

export async function call(method, request = {}) {
  let answer, body;
  try {
    answer = await fetch("api/" + method, {
      method: "POST", headers: {"Content-Type": "application/json", "X-Trainyard-Key": localStorage.getItem("key") || ""}, body: JSON.stringify(request),
    });
    body = await answer.text();
  } catch {
    connection("This page's server has ended: run `trainyard dashboard` again.");
    throw new ServiceError("UNAVAILABLE", "this page's server cannot be reached", "");
  }
  if (answer.ok) {
    connection("");
    return JSON.parse(body);
  }
  let e;
  try { e = JSON.parse(body); } catch { e = {status: "PERMISSION_DENIED", message: body.trim(), reason: ""}; }
  connection(answer.status === 403 && !e.reason && e.message.includes("trainyard dashboard") ? e.message : e.status === "UNAVAILABLE" || e.status === "DEADLINE_EXCEEDED" ? e.message : "");
  throw new ServiceError(e.status, e.message, e.reason);
}


// Repeats `work` every `ms` while the page is visible, and never twice at a time. Returns a function that ends it.
export function poll(ms, work) {
  let ended = false, timer = 0;
  const turn = async () => {
    clearTimeout(timer);
    if (ended) return;
    if (!document.hidden) { try { await work(); } catch (e) { if (!(e instanceof ServiceError)) throw e; } }
    if (!ended) timer = setTimeout(turn, ms);
  };
  turn();
  return () => { ended = true; clearTimeout(timer); };
}
