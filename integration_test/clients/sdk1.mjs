// The story by the official TypeScript SDK, 1.x: the ClientSideConnection that
// most editors were built with.
import * as acp from "acp-sdk-1";
import { finish, start, story } from "./story.mjs";

const heard = { updates: [], asked: [], answer: {} };
const agent = start();
const connection = new acp.ClientSideConnection(
  () => ({
    requestPermission: async () => ({ outcome: { outcome: "cancelled" } }),
    sessionUpdate: async (params) => void heard.updates.push(params.update),
    extMethod: async (_method, params) => {
      heard.asked.push(params);
      return heard.answer;
    },
    extNotification: async () => {},
  }),
  acp.ndJsonStream(agent.input, agent.output),
);

const bound = (method) => (params) => connection[method](params);
const play = process.env.OINO_STORY === "wrapped" ? (await import("./wrapped.mjs")).wrapped : story;
await play(
  {
    initialize: bound("initialize"),
    newSession: bound("newSession"),
    prompt: bound("prompt"),
    loadSession: bound("loadSession"),
    resumeSession: bound("resumeSession"),
    listSessions: bound("listSessions"),
    closeSession: bound("closeSession"),
    deleteSession: bound("deleteSession"),
    forkSession: bound("unstable_forkSession"),
    ext: (method, params) => connection.extMethod(method, params),
  },
  heard,
);
await finish(agent);
