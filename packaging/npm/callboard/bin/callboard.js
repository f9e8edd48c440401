#!/usr/bin/env node
// Starts the program of the package for this platform, with the same arguments and streams, and ends as it ends.

"use strict";

const { spawn } = require("node:child_process");

const platform = `callboard-${process.platform}-${process.arch}`;

let program;
try {
  program = require.resolve(`${platform}/bin/callboard`);
} catch {
  console.error(`callboard: the package ${platform} is not installed. Linux with glibc, on x64 and arm64, has one; where it is`);
  console.error("missing there, install again without --omit=optional.");
  process.exit(1);
}

const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });

// A terminal sends these to the whole process group, so the program has them already; a second one would end it at once.
process.on("SIGINT", () => {});
process.on("SIGHUP", () => {});
process.on("SIGTERM", () => child.kill("SIGTERM"));

child.on("error", (error) => {
  console.error(`callboard: ${program}: ${error.message}`);
  process.exit(1);
});
child.on("close", (code, signal) => {
  if (signal === null) process.exit(code);
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});
