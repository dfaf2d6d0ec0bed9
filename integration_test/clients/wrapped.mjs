// The story of a client whose agent is wrapped: the agent does what the
// messages say (agent_test.go), and oinod takes it back.
import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { capabilities } from "./story.mjs";

export async function wrapped(peer, heard) {
  const work = process.env.OINO_WORKSPACE;
  const file = (name) => join(work, name);
  const read = (name) => readFileSync(file(name), "utf8");
  writeFileSync(file("a.txt"), "before\n");

  const hello = await peer.initialize({ protocolVersion: 1, clientCapabilities: capabilities });
  assert.equal(hello.agentInfo.name, "fake", "the agent speaks for itself");
  assert.ok(hello.agentCapabilities._meta.oino.methods.includes("_oino/rewind"));
  const { sessionId } = await peer.newSession({ cwd: work, mcpServers: [] });
  const turn = (session, ...lines) => peer.prompt({ sessionId: session, prompt: [{ type: "text", text: lines.join("\n") }] });

  assert.equal((await turn(sessionId, "say KEPT", "write a.txt one")).stopReason, "end_turn");
  await turn(sessionId, "say LOST", "write a.txt two", "write sub/new.txt x", "say done");
  assert.ok(heard.updates.some((u) => u.sessionUpdate === "available_commands_update" && u.availableCommands.some((c) => c.name === "rewind")));
  const { checkpoints } = await peer.ext("_oino/checkpoints", { sessionId });
  assert.equal(checkpoints.length, 2);

  // The client is asked, says no, is asked, says yes.
  const rewind = { sessionId, entryId: checkpoints[1].entryId, conversation: "rewind" };
  heard.answer = { cancel: true, reason: "not now" };
  assert.equal((await peer.ext("_oino/rewind", rewind)).cancelled, true);
  assert.equal(heard.asked.at(-1).sessionId, sessionId, "by the name that the client has for it");
  heard.answer = {};
  const rewound = await peer.ext("_oino/rewind", rewind);
  assert.deepEqual(rewound.restored, [file("a.txt")]);
  assert.deepEqual(rewound.deleted, [file("sub/new.txt")]);
  assert.equal(read("a.txt"), "one\n");
  assert.ok(!existsSync(file("sub")));

  heard.updates.length = 0;
  await turn(sessionId, "told", "write a.txt three");
  const told = heard.updates.filter((u) => u.sessionUpdate === "agent_message_chunk").map((u) => u.content.text).join("");
  assert.match(told, /KEPT/);
  assert.doesNotMatch(told, /LOST/);

  const forked = await peer.ext("_oino/rewind", { sessionId, entryId: checkpoints[0].entryId, conversation: "fork" });
  assert.equal(read("a.txt"), "before\n");
  await turn(forked.sessionId, "write a.txt in the fork");
  assert.equal((await peer.ext("_oino/checkpoints", { sessionId: forked.sessionId })).checkpoints.length, 1);
  await turn(forked.sessionId, "/rewind 1 --files");
  assert.equal(read("a.txt"), "before\n");

  await assert.rejects(peer.ext("_oino/write", { sessionId, path: file("a.txt"), content: "x" }), (e) => e.code === -32601);
  heard.updates.length = 0;
  await peer.loadSession({ sessionId, cwd: work, mcpServers: [] });
  assert.ok(heard.updates.some((u) => u.sessionUpdate === "user_message_chunk"));
}
