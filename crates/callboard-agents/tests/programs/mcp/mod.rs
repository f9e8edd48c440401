//! Tools of MCP servers (docs/mcp.md): real programs and real HTTP on this machine, of several revisions of the protocol, and
//! servers that do not behave. The servers are written in Python and run in real time.

#![cfg(unix)]

mod hostile;
mod peers;
mod programs;
mod rules;
mod web;
