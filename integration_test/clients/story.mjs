// The story that every TypeScript client plays: a conversation with files, a
// rewind, a replay, a fork. It throws where the agent is not as promised.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Readable, Writable } from "node:stream";

// start spawns the agent and returns its streams, as an ACP library wants them,
// and what waits for its end.
export function start() {
  const args = JSON.parse(process.env.OINO_ARGUMENTS ?? '["serve"]');
  const agent = spawn(process.env.OINO_UNDER_TEST, args, { stdio: ["pipe", "pipe", "inherit"] });
  const ended = new Promise((resolve) => agent.on("exit", (code, signal) => resolve({ code, signal })));
  return { input: Writable.toWeb(agent.stdin), output: Readable.toWeb(agent.stdout), ended, hangUp: () => agent.stdin.end() };
}

// the capabilities with which the client is asked before a fork.
export const capabilities = { _meta: { oino: { sessionBeforeFork: true } } };

// story plays it. peer calls the agent's methods through the library:
// request(method, params) for ACP's, ext(method, params) for ours. heard has
// the updates and the questions that have come so far.
export async function story(peer, heard) {
  const work = process.env.OINO_WORKSPACE;
  const file = (name) => join(work, name);
  const read = (name) => readFileSync(file(name), "utf8");
  writeFileSync(file("a.txt"), "before\n");

  const hello = await peer.initialize({ protocolVersion: 1, clientCapabilities: capabilities });
  assert.equal(hello.protocolVersion, 1);
  assert.equal(hello.agentInfo.name, "oinod");
  const methods = hello.agentCapabilities._meta.oino.methods;
  assert.ok(methods.includes("_oino/rewind"), "the client sees our methods");

  const { sessionId } = await peer.newSession({ cwd: work, mcpServers: [] });
  const said = await peer.prompt({ sessionId, prompt: [{ type: "text", text: "make it new" }] });
  assert.equal(said.stopReason, "end_turn");
  const entryId = said._meta.oino.entryId;
  assert.equal(said._meta.oino.turnOpen, true);

  assert.equal((await peer.ext("_oino/write", { sessionId, path: file("a.txt"), content: "after\n" })).existed, true);
  await peer.ext("_oino/write", { sessionId, path: file("sub/b.txt"), content: "new\n" });
  await peer.ext("_oino/append", { sessionId, entries: [{ role: "assistant", content: "It is new." }] });
  const turn = await peer.ext("_oino/turn_end", { sessionId });
  assert.deepEqual(turn.changed.map((c) => c.change), ["modified", "created"]);
  assert.equal(read("a.txt"), "after\n");

  const { checkpoints } = await peer.ext("_oino/checkpoints", { sessionId });
  assert.deepEqual(checkpoints.map((c) => c.entryId), [entryId]);
  assert.deepEqual(checkpoints[0].files.map((f) => f.existed), [true, false]);

  const rewound = await peer.ext("_oino/rewind", { sessionId, entryId });
  assert.deepEqual(rewound.restored, [file("a.txt")]);
  assert.deepEqual(rewound.deleted, [file("sub/b.txt")]);
  assert.equal(read("a.txt"), "before\n");
  assert.ok(!existsSync(file("sub")));
  await peer.ext("_oino/redo", { sessionId });
  assert.equal(read("a.txt"), "after\n");

  // An error comes through with its code and its kind.
  await assert.rejects(peer.ext("_oino/redo", { sessionId }), (e) => {
    assert.equal(e.code, -32002);
    assert.equal(e.data.kind, "nothing_to_redo");
    return true;
  });

  // The conversation is replayed: by another library's eyes every update is
  // one that it knows.
  heard.updates.length = 0;
  await peer.loadSession({ sessionId, cwd: work, mcpServers: [] });
  const chunks = heard.updates.filter((u) => u.sessionUpdate.endsWith("_chunk"));
  assert.deepEqual(chunks.map((u) => [u.sessionUpdate, u.content.text]), [
    ["user_message_chunk", "make it new"],
    ["agent_message_chunk", "It is new."],
  ]);
  assert.ok(heard.updates.some((u) => u.sessionUpdate === "available_commands_update"));

  // A fork: the client is asked, says no, is asked, says yes.
  heard.answer = { cancel: true, reason: "not now" };
  const refused = await peer.ext("_oino/rewind", { sessionId, entryId, conversation: "fork" });
  assert.equal(refused.cancelled, true);
  assert.equal(refused.reason, "not now");
  assert.equal(read("a.txt"), "after\n");
  assert.equal(heard.asked.at(-1).entryId, entryId);
  heard.answer = {};
  const forked = await peer.forkSession({ sessionId, cwd: work, mcpServers: [], _meta: { oino: { entryId, position: "at" } } });
  assert.notEqual(forked.sessionId, sessionId);
  assert.equal(heard.asked.length, 2);

  const { sessions } = await peer.listSessions({ cwd: work });
  assert.deepEqual(sessions.map((s) => s.sessionId).sort(), [sessionId, forked.sessionId].sort());
  await peer.deleteSession({ sessionId });
  const inFork = await peer.ext("_oino/rewind", { sessionId: forked.sessionId, entryId });
  assert.deepEqual(inFork.restored, [file("a.txt")]);
  assert.equal(read("a.txt"), "before\n");
  await peer.closeSession({ sessionId: forked.sessionId });
  await peer.resumeSession({ sessionId: forked.sessionId, cwd: work, mcpServers: [] });
}

// finish ends the agent as a client does and checks how it went.
export async function finish(agent) {
  agent.hangUp();
  assert.deepEqual(await agent.ended, { code: 0, signal: null });
  console.log("the story was played");
}
