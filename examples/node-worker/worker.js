// A Shiftboss worker in Node.js. It speaks the published protocol and nothing else:
//
//   npm ci
//   SHIFTBOSS_COORDINATOR_TOKEN=sb_... node worker.js 127.0.0.1:50051
//
// A handler gets the arguments and an AbortSignal. Its return value is the result; an exception is a failed attempt.
import fs from 'node:fs';
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
  async wait({ seconds }, signal) {
    await sleep(seconds * 1000, undefined, { signal }); // stops when the task is cancelled or lost
    return seconds;
  },
  async explode() {
    throw new Error('as asked for');
  },
};

const ADDRESS = process.argv[2] ?? '127.0.0.1:50051';
const WORKER_ID = process.argv[3] ?? `node:${os.hostname()}:${process.pid}`;
const SLOTS = 4;

// TLS as for Python workers: an authority turns it on, a certificate and key of the worker's own make it mutual.
function credentials() {
  const { SHIFTBOSS_COORDINATOR_CA: ca, SHIFTBOSS_COORDINATOR_CLIENT_CERT: cert } = process.env;
  const key = process.env.SHIFTBOSS_COORDINATOR_CLIENT_KEY;
  if (!ca) return grpc.credentials.createInsecure();
  const read = (file) => (file ? fs.readFileSync(file) : null);
  return grpc.credentials.createSsl(read(ca), read(key), read(cert));
}

const here = path.dirname(fileURLToPath(import.meta.url));
const definition = protoLoader.loadSync('shiftboss/v1/fleet.proto', {
  includeDirs: [path.join(here, '..', '..', 'proto')],
  keepCase: true,
  longs: String, // leases are 64-bit numbers: as text they stay exact
  defaults: true, // empty lists and false instead of undefined
});
const { Fleet } = grpc.loadPackageDefinition(definition).shiftboss.v1;
const client = new Fleet(ADDRESS, credentials());

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

const held = new Map(); // lease → AbortController
let session = '';
let heartbeatSeconds = 5;
let paused = false;
let stopping = false;
let beatNow = new AbortController(); // aborted to end the pause before the next heartbeat
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
  if (!answer.resumed) for (const lease of [...held.keys()]) drop(lease);
  session = answer.session;
  heartbeatSeconds = answer.heartbeat_seconds;
  console.log(`registered as ${WORKER_ID} at ${ADDRESS}`);
}

const free = () => (stopping || paused ? 0 : Math.max(SLOTS - held.size, 0));
const say = (message) => stream?.write({ free_slots: free(), ...message });

// The task is no longer this worker's: stop it and report nothing.
function drop(lease) {
  held.get(lease)?.abort('lost');
  held.delete(lease);
}

async function run(task, control) {
  const began = performance.now();
  let outcome;
  try {
    const result = await handlers[task.task_type](JSON.parse(task.params_json), control.signal);
    outcome = { completed: { result_json: JSON.stringify(result ?? null) } };
  } catch (error) {
    const cancelled = control.signal.aborted && control.signal.reason === 'cancel';
    outcome = cancelled ? { cancelled: {} } : { failed: { error: String(error) } };
  }
  if (held.has(task.lease)) {
    const seconds = (performance.now() - began) / 1000;
    await deliver({ held: { task_id: task.task_id, lease: task.lease }, seconds, ...outcome });
  }
  held.delete(task.lease);
  say({});
}

// Repeat a report until it is answered: the coordinator counts each attempt once.
async function deliver(completion) {
  while (held.has(completion.held.lease)) {
    try {
      return await call('ReportCompletion', { worker_id: WORKER_ID, session, completions: [completion] });
    } catch (error) {
      console.warn(`report waits: ${error.message}`);
      await sleep(500); // a lost session is renewed by the stream, which drops what is no longer held
    }
  }
}

function take(assignments) {
  const leases = assignments.map((task) => task.lease);
  if (stopping) {
    say({ refused: leases.map((lease) => ({ lease, reason: 'the worker is stopping' })) });
    return;
  }
  for (const lease of leases) held.set(lease, new AbortController());
  if (leases.length) say({ accepted: leases });
  for (const task of assignments) run(task, held.get(task.lease));
}

function openStream() {
  return new Promise((resolve) => {
    stream = client.AssignTask(metadata);
    stream.on('data', ({ assignments, withdrawn, beat_now }) => {
      for (const lease of withdrawn) drop(lease);
      take(assignments);
      if (beat_now) beatNow.abort();
    });
    stream.on('error', resolve);
    stream.on('end', () => resolve(null));
    say({ worker_id: WORKER_ID, session });
  });
}

// What the coordinator wants of this worker comes back with each heartbeat.
function obey(orders) {
  for (const lease of orders.lost) drop(lease);
  for (const lease of orders.cancel) held.get(lease)?.abort('cancel');
  if (orders.paused !== paused) {
    paused = orders.paused;
    say({});
  }
  if (orders.draining) stop();
}

async function beat() {
  for (;;) {
    const resource_usage = { memory_mb: process.memoryUsage().rss / 2 ** 20, task_count: held.size };
    try {
      obey(await call('Heartbeat', { worker_id: WORKER_ID, session, leases: [...held.keys()], resource_usage }));
    } catch (error) {
      console.warn(`heartbeat failed: ${error.message}`);
    }
    beatNow = new AbortController();
    await sleep(heartbeatSeconds * 1000, undefined, { signal: beatNow.signal }).catch(() => {});
  }
}

// Take nothing new, finish what is held, unregister, exit.
async function stop() {
  if (stopping) return;
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
for (;;) {
  const error = await openStream();
  if (error) console.warn(`stream ended: ${error.message}`);
  await sleep(500);
  if (error && lostSession(error)) await register().catch((again) => console.warn(again.message));
}
