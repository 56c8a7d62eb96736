// Node's clients: @lancedb/arrow-flight-sql-client, which has no TLS (0.3.0), and plain @grpc/grpc-js with
// apache-arrow, which has; and calls that no client should make.
//
// Arguments: host:port, "tls" or "plain" (the authority in GRPC_DEFAULT_SSL_ROOTS_FILE_PATH), user, password,
// base64 of a CommandStatementQuery and of a CommandStatementUpdate in Any; or, in place of the latter, "rows" and
// the query's SQL. Prints one JSON object: what each step saw.
import { createRequire } from "node:module";
import { dirname, join } from "node:path";

import * as grpc from "@grpc/grpc-js";
import * as loader from "@grpc/proto-loader";
import { Client } from "@lancedb/arrow-flight-sql-client";
import { tableFromIPC } from "apache-arrow";

const [host, transport, username, password, query, update, sql] = process.argv.slice(2);
const secure = transport === "tls";
const DEADLINE_MS = 20_000;

const told = (error) => ({ error: grpc.status[error.code] ?? String(error.code), message: error.details ?? String(error) });

async function step(work) {
  try {
    return await work();
  } catch (error) {
    return told(error);
  }
}

async function stock() {
  const client = await Client.connect({ host, username, password, insecure: true });
  const answer = {};
  const ask = async (sql) => (await client.query(sql)).collectToObjects();
  answer.rows = await step(async () => (await ask("SELECT range::INTEGER AS n FROM range(20000)")).length);
  answer.text = await step(async () => (await ask("SELECT 'é' AS t"))[0].t);
  answer.bad = await step(() => ask("SELECT nothing"));
  return answer;
}

// Calls the service directly: a descriptor and no schema message, an end before any message, bytes of no message.
function raw() {
  const require = createRequire(import.meta.url);
  const protos = dirname(require.resolve("@lancedb/arrow-flight-sql-client"));
  const loaded = loader.loadSync(join(protos, "Flight.proto"), { keepCase: true });
  const Service = grpc.loadPackageDefinition(loaded).arrow.flight.protocol.FlightService;
  const credentials = secure ? grpc.credentials.createSsl() : grpc.credentials.createInsecure();
  return new Service(host, credentials);
}

function headers() {
  const metadata = new grpc.Metadata();
  metadata.set("authorization", `Basic ${Buffer.from(`${username}:${password}`).toString("base64")}`);
  return metadata;
}

const options = () => ({ deadline: Date.now() + DEADLINE_MS });

function duplex(client, name, messages) {
  return new Promise((resolve) => {
    const call = client[name](headers(), options());
    const received = [];
    call.on("data", (message) => received.push(Buffer.from(message.app_metadata ?? "").toString("hex")));
    call.on("error", (error) => resolve(told(error)));
    call.on("end", () => resolve({ received }));
    messages.forEach((message) => call.write(message));
    call.end();
  });
}

function fetch(client, ticket) {
  return new Promise((resolve) => {
    const call = client.DoGet({ ticket }, headers(), options());
    call.on("data", () => {});
    call.on("error", (error) => resolve(told(error)));
    call.on("end", () => resolve({ ended: true }));
  });
}

// One message of the stream as IPC frames it: marker, size of the header, header to a multiple of 8, body.
function framed({ data_header: header, data_body: body = Buffer.alloc(0) }) {
  const padded = Math.ceil(header.length / 8) * 8;
  const frame = Buffer.alloc(8 + padded);
  frame.writeUInt32LE(0xffffffff, 0);
  frame.writeUInt32LE(padded, 4);
  header.copy(frame, 8);
  return Buffer.concat([frame, body]);
}

async function answer(client) {
  const descriptor = { type: "CMD", cmd: Buffer.from(query, "base64") };
  const info = await new Promise((resolve, reject) =>
    client.GetFlightInfo(descriptor, headers(), options(), (error, found) => (error ? reject(error) : resolve(found))),
  );
  const frames = [];
  const call = client.DoGet(info.endpoint[0].ticket, headers(), options());
  for await (const message of call) frames.push(framed(message));
  return tableFromIPC(Buffer.concat(frames));
}

async function direct(client) {
  const table = await answer(client);
  return { rows: table.numRows, last: Number(table.getChild("n").get(table.numRows - 1)) };
}

const texts = (rows) => rows.map((row) => Object.values(row).map((value) => (value === null ? null : String(value))));

async function rowsOnly(client) {
  const stock = await Client.connect({ host, username, password, insecure: true });
  const direct = (await answer(client)).toArray().map((row) => row.toJSON());
  console.log(JSON.stringify({ direct: texts(direct), stock: texts(await (await stock.query(sql)).collectToObjects()) }));
  client.close();
  process.exit(0);
}

const client = raw();
if (update === "rows") await rowsOnly(client);
const seen = { direct: await step(() => direct(client)) };
if (!secure) seen.stock = await step(stock);
const descriptor = { flight_descriptor: { type: "CMD", cmd: Buffer.from(update, "base64") } };
seen.put_without_schema = await duplex(client, "DoPut", [descriptor]);
seen.put_of_nothing = await duplex(client, "DoPut", []);
seen.put_of_garbage = await duplex(client, "DoPut", [{ ...descriptor, data_header: Buffer.from("no flatbuffer") }]);
seen.exchange_of_nothing = await duplex(client, "DoExchange", []);
seen.garbage_ticket = await fetch(client, Buffer.from([0xff, 0x00, 0x12]));
client.close();
console.log(JSON.stringify(seen));
