// grpc_js_client.js ADDRESS SPEC: @grpc/grpc-js, HTTP/2 in pure JavaScript, with messages from server reflection alone. Creates the
// job of SPEC (JSON), watches it to its end, queries its loss, creates it again to cancel it, and prints what it saw as
// one line of JSON.
"use strict";
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const [address, specText] = process.argv.slice(2);
const raw = (bytes) => bytes;

// A length-delimited field (they all are shorter than 16 KiB or come from the server).
function field(number, bytes) {
  const length = [];
  let n = bytes.length;
  for (; n > 127; n = Math.floor(n / 128)) length.push((n % 128) | 128);
  return Buffer.concat([Buffer.from([(number << 3) | 2, ...length, n]), bytes]);
}

function* fields(bytes) {
  let at = 0;
  const varint = () => {
    let value = 0;
    for (let scale = 1; ; scale *= 128) {
      const byte = bytes[at++];
      value += (byte & 127) * scale;
      if (byte < 128) return value;
    }
  };
  while (at < bytes.length) {
    const tag = varint();
    const value = varint();
    if ((tag & 7) === 2) {
      yield [tag >> 3, bytes.subarray(at, at + value)];
      at += value;
    } else {
      yield [tag >> 3, value];
    }
  }
}
const find = (bytes, number) => [...fields(bytes)].filter(([n]) => n === number).map(([, value]) => value);

function reflect(client, questions) {
  return new Promise((resolve, reject) => {
    const answers = [];
    const stream = client.makeBidiStreamRequest("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", raw, raw);
    stream.on("data", (answer) => answers.push(answer));
    stream.on("error", reject);
    stream.on("end", () => resolve(answers));
    for (const [number, text] of questions) stream.write(field(number, Buffer.from(text)));
    stream.end();
  });
}

async function describe(client) {
  const [list] = await reflect(client, [[7, ""]]);
  const services = find(find(list, 6)[0], 1).map((service) => find(service, 1)[0].toString());
  const answers = await reflect(client, services.map((name) => [4, name]));
  const files = new Map();
  for (const answer of answers)
    for (const file of find(find(answer, 4)[0], 1)) files.set(find(file, 1)[0].toString(), file);
  const set = Buffer.concat([...files.values()].map((file) => field(1, file)));
  const options = { keepCase: true, longs: Number, enums: String, oneofs: true };
  return [services, grpc.loadPackageDefinition(loader.loadFileDescriptorSetFromBuffer(set, options))];
}

const ask = (service, method, request) => new Promise((resolve, reject) => {
  service[method](request, { deadline: Date.now() + 30000 }, (error, reply) => (error ? reject(error) : resolve(reply)));
});

// The last message of a watch; `seen` looks at each.
const watch = (jobs, name, seen) => new Promise((resolve, reject) => {
  let last;
  const stream = jobs.WatchJob({ name });
  stream.on("data", (update) => seen((last = update)));
  stream.on("error", reject);
  stream.on("end", () => resolve(last));
});

async function main() {
  const credentials = grpc.credentials.createInsecure();
  const [services, root] = await describe(new grpc.Client(address, credentials));
  const v1 = root.trainyard.v1;
  const jobs = new v1.JobService(address, credentials);
  const spec = JSON.parse(specText);
  const created = await ask(jobs, "CreateJob", { spec });
  const ended = await watch(jobs, created.name, () => {});
  const metrics = await ask(new v1.MetricService(address, credentials), "QueryMetrics",
    { job: created.name, names: ["loss"] });
  const long = await ask(jobs, "CreateJob", { spec: { ...spec, train: { ...spec.train, steps: 100000 } } });
  let asked = false;
  const cancelled = await watch(jobs, long.name, (update) => {
    if (update.progress && update.progress.step > 0 && !asked) {
      asked = true;
      jobs.CancelJob({ name: long.name }, () => {});
    }
  });
  const failure = await ask(jobs, "GetJob", { name: "jobs/999999" }).catch((error) => error);
  console.log(JSON.stringify({ services, state: ended.job.state, steps: metrics.series[0].step,
    cancelled: cancelled.job.state, failure: { code: failure.code, details: failure.details,
      has_details: failure.metadata.get("grpc-status-details-bin").length } }));
  process.exit(0);
}
main().catch((error) => { console.error(error); process.exit(1); });
