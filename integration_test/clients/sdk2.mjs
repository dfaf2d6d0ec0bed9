// The story by the official TypeScript SDK, 2.x: a client app with handlers.
import * as acp from "@agentclientprotocol/sdk";
import { finish, start, story } from "./story.mjs";

const heard = { updates: [], asked: [], answer: {} };
const agent = start();
const connection = acp
  .client({ name: "story" })
  .onNotification("session/update", (ctx) => void heard.updates.push(ctx.params.update))
  .onRequest("_oino/session_before_fork", (params) => params, (ctx) => {
    heard.asked.push(ctx.params);
    return heard.answer;
  })
  .onNotification("_oino/session_fork", (params) => params, () => {})
  .connect(acp.ndJsonStream(agent.input, agent.output));

const call = (method) => (params) => connection.agent.request(method, params);
const play = process.env.OINO_STORY === "wrapped" ? (await import("./wrapped.mjs")).wrapped : story;
await play(
  {
    initialize: call("initialize"),
    newSession: call("session/new"),
    prompt: call("session/prompt"),
    loadSession: call("session/load"),
    resumeSession: call("session/resume"),
    listSessions: call("session/list"),
    closeSession: call("session/close"),
    deleteSession: call("session/delete"),
    forkSession: call("session/fork"),
    ext: (method, params) => connection.agent.request(method, params),
  },
  heard,
);
await finish(agent);
