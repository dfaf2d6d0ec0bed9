// Ends the process that it is loaded into when the test lets go: see leash.
require("node:net").connect(Number(process.env.OINO_LEASH), "127.0.0.1")
  .on("error", () => {})
  .on("close", () => process.kill(process.pid, "SIGKILL"))
  .resume()
  .unref();
