// A Shiftboss worker in Node.js. It speaks the published protocol and nothing else:
//
//   npm ci
//   SHIFTBOSS_COORDINATOR_TOKEN=sb_... node worker.js 127.0.0.1:50051
//
// Its handlers are plain functions below: arguments in, result out, an exception is a failed attempt.
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { setTimeout as sleep } from 'node:timers/promises';
import grpc from '@grpc/grpc-js';
import protoLoader from '@grpc/proto-loader';

const handlers = {
  async slugify({ text }) {
    return text.toLowerCase().replace(/[^a-z0-9]+/g, '-').replace(/^-|-$/g, '');
  },
  async explode() {
    throw new Error('as asked for');
  },
};

const ADDRESS = process.argv[2] ?? '127.0.0.1:50051';
const WORKER_ID = process.argv[3] ?? `node:${os.hostname()}:${process.pid}`;
const SLOTS = 4;

const here = path.dirname(fileURLToPath(import.meta.url));
const definition = protoLoader.loadSync('shiftboss/v1/fleet.proto', {
  includeDirs: [path.join(here, '..', '..', 'proto')],
  keepCase: true,
  longs: String, // leases are 64-bit numbers: as text they stay exact
});
const { Fleet } = grpc.loadPackageDefinition(definition).shiftboss.v1;
const client = new Fleet(ADDRESS, grpc.credentials.createInsecure());

const metadata = new grpc.Metadata();
if (process.env.SHIFTBOSS_COORDINATOR_TOKEN) {
  metadata.set('authorization', `Bearer ${process.env.SHIFTBOSS_COORDINATOR_TOKEN}`);
}

const call = (method, request) =>
  new Promise((resolve, reject) => {
    client[method](request, metadata, (error, answer) => (error ? reject(error) : resolve(answer)));
  });

const lostSession = (error) =>
  [grpc.status.NOT_FOUND, grpc.status.UNAUTHENTICATED].includes(error.code);

const held = new Set();
let session = '';
let heartbeatSeconds = 5;
let stopping = false;
let stream = null;

async function register() {
  const answer = await call('RegisterWorker', {
    worker_id: WORKER_ID,
    capabilities: { task_types: Object.keys(handlers), max_concurrent_tasks: SLOTS },
    host: os.hostname(),
    pid: process.pid,
    protocol_version: 1,
    session,
  });
  session = answer.session;
  heartbeatSeconds = answer.heartbeat_seconds;
  console.log(`registered as ${WORKER_ID} at ${ADDRESS}`);
}

const say = (message) => stream?.write({ free_slots: stopping ? 0 : SLOTS - held.size, ...message });

async function run(task) {
  const began = performance.now();
  let outcome;
  try {
    const result = await handlers[task.task_type](JSON.parse(task.params_json));
    outcome = { completed: { result_json: JSON.stringify(result ?? null) } };
  } catch (error) {
    outcome = { failed: { error: String(error) } };
  }
  const completion = {
    held: { task_id: task.task_id, lease: task.lease },
    seconds: (performance.now() - began) / 1000,
    ...outcome,
  };
  await deliver({ worker_id: WORKER_ID, session, completions: [completion] });
  held.delete(task.lease);
  say({});
}

// A report is repeated until it is answered: the coordinator counts each attempt once.
async function deliver(request) {
  for (;;) {
    try {
      return await call('ReportCompletion', request);
    } catch (error) {
      if (lostSession(error)) return null;
      console.warn(`report waits: ${error.message}`);
      await sleep(500);
    }
  }
}

function openStream() {
  return new Promise((resolve) => {
    stream = client.AssignTask(metadata);
    stream.on('data', ({ assignments }) => {
      for (const task of assignments) held.add(task.lease);
      if (assignments.length) say({ accepted: assignments.map((task) => task.lease) });
      for (const task of assignments) run(task);
    });
    stream.on('error', resolve);
    stream.on('end', () => resolve(null));
    say({ worker_id: WORKER_ID, session });
  });
}

async function beat() {
  while (!stopping) {
    const resource_usage = {
      cpu_percent: 0,
      memory_mb: process.memoryUsage().rss / 2 ** 20,
      task_count: held.size,
    };
    await call('Heartbeat', { worker_id: WORKER_ID, session, leases: [...held], resource_usage }).catch(
      (error) => console.warn(`a beat did not land: ${error.message}`),
    );
    await sleep(heartbeatSeconds * 1000, undefined, { ref: false });
  }
}

async function stop() {
  stopping = true;
  say({});
  while (held.size) await sleep(50);
  await call('UnregisterWorker', { worker_id: WORKER_ID, session }).catch(() => {});
  process.exit(0);
}

process.on('SIGTERM', stop);
process.on('SIGINT', stop);

await register();
beat();
while (!stopping) {
  const error = await openStream();
  if (stopping) break;
  if (error) console.warn(`stream broke: ${error.message}`);
  await sleep(500);
  if (error && lostSession(error)) await register().catch((again) => console.warn(again.message));
}
