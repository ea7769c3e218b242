/** The client against a running service: `DABAND_URL`, with a key in `DABAND_API_KEY`. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { test } from "node:test";

import { DabandClient, ProblemError, UnreachableError, answered } from "../src/index.js";

const url = process.env["DABAND_URL"] ?? "";
const key = process.env["DABAND_API_KEY"] ?? "";
const client = new DabandClient({ url, key });
const context = [0.1, 0.2, 0.3, 0.4];

test("a round is played, rewarded once and repeated safely", async () => {
  const made = await client.createExperiment({
    name: "from-node",
    arms: ["low", "high"],
    context: { kind: "shared", shape: [4] },
    method: "linucb",
  });
  assert.equal(made.status, "active");
  const asked = { experiment: made.name, request_id: "r-1", source: { context } };
  const selected = await client.select(asked);
  assert.ok(selected.source);
  assert.deepEqual((await client.select(asked)).source, selected.source);
  const rewarded = await client.reward(selected.source.decision_id, 1);
  assert.equal(rewarded.status, "created");
  const again = await client.reward(selected.source.decision_id, 1);
  assert.equal(again.status, "already_recorded");
  const target = await client.targetSelect({ experiment: made.name, contexts: [context, context] });
  assert.equal(target.decisions.length, 2);
  assert.equal((await client.state(made.name)).head_offset, 2);
});

test("a problem is an error with its kind and its places", async () => {
  await assert.rejects(
    client.select({ experiment: "from-node", source: { context: [1] } }),
    (error) =>
      error instanceof ProblemError &&
      error.slug === "invalid-request" &&
      error.message.includes("#/source/context"),
  );
  await assert.rejects(client.state("nobody"), /404 Unknown experiment/);
});

test("a wrong key is refused", async () => {
  const stranger = new DabandClient({ url, key: "daband_none" });
  await assert.rejects(stranger.state("from-node"), /401 Key refused/);
});

test("without an answer the error says why", async () => {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close(); // nobody listens there any more
  await once(server, "close");
  const place = `127.0.0.1:${port}`;
  await assert.rejects(
    new DabandClient({ url: `http://${place}` }).state("from-node"),
    (error) => error instanceof UnreachableError && error.message.includes(place),
  );
});

test("every other call is typed by its path", async () => {
  const listed = await answered(client.api.GET("/experiments"));
  assert.deepEqual(listed.experiments.map((each) => each.name), ["from-node"]);
});
