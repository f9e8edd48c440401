"""Checks `callboard serve` and `callboard mcp` with clients that others have written: `httpx` and `promtool` (rest.py), and of the Model
Context Protocol the package `mcp` of PyPI and the conformance suite. Arguments: the program `callboard`, node, the script of the suite,
and `promtool`.
"""

import asyncio
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

import fixture
import rest

CALLBOARD, NODE, SUITE, PROMTOOL = sys.argv[1:5]
KNOWN = pathlib.Path(__file__).parent / "known-failures.yml"
TASK = {"task": "say hello", "input": "hello"}


class Server:
    """`callboard serve` in a project of its own, with a model that repeats what it was asked. Without agents it has the starter team."""

    def __init__(self, folder, write_agents=None):
        self.folder = folder
        (folder / ".callboard").mkdir(parents=True)
        if write_agents:
            (folder / "agents").mkdir()
            write_agents(folder / "agents")
        self.env = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "XDG_RUNTIME_DIR": str(folder / "run")}
        (folder / "state").mkdir()
        (folder / "run").mkdir(mode=0o700)
        command = [CALLBOARD, "serve", "--listen", "127.0.0.1:0", "--model", "fake"]
        self.process = subprocess.Popen(command, cwd=folder, env=self.env, stdout=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().split()[-1]
        self.token = self.callboard("tokens", "add", "client").strip()

    def callboard(self, *arguments):
        done = subprocess.run([CALLBOARD, *arguments], cwd=self.folder, env=self.env, stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(30)


async def use(client):
    """Lists the tools, has an agent work, and reads the journal of its run."""
    tools, cursor = [], None
    while True:
        page = await client.list_tools(cursor=cursor)
        tools += [tool.name for tool in page.tools]
        cursor = page.next_cursor
        if not cursor:
            break
    assert "agent_coder" in tools and "run_result" in tools, tools
    progress = []

    async def report(done, total, message):
        progress.append(message)

    result = await client.call_tool("agent_coder", TASK, progress_callback=report)
    assert not result.is_error and "hello" in result.content[0].text, result
    run = result.structured_content["request_id"]
    assert progress, "no progress was reported"
    again = await client.call_tool("run_result", {"request_id": run})
    assert again.structured_content["output"] == result.structured_content["output"], again
    journal = await client.read_resource(f"callboard://runs/{run}/journal")
    events = json.loads(journal.contents[0].text)["events"]
    assert events[0]["kind"] == "submitted" and events[0]["submission"]["task"]["is_untrusted"], events[0]
    wrong = await client.call_tool("agent_coder", {"task": 1})
    assert wrong.is_error, wrong
    try:
        await client.call_tool("agent_nobody", {"task": "x"})
    except Exception as error:
        assert "there is no tool agent_nobody" in str(error), error
    else:
        raise AssertionError("an unknown tool was called")
    return client.protocol_version


@contextlib.asynccontextmanager
async def over_http(server, mode="auto"):
    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {server.token}"}, timeout=60, trust_env=False)
    async with http, Client(streamable_http_client(f"{server.address}/mcp", http_client=http), mode=mode) as client:
        yield client


async def use_all(server):
    versions = set()
    for mode in ["auto", "legacy"]:
        async with over_http(server, mode) as client:
            versions.add(("http", await use(client)))
        stdio = StdioServerParameters(command=CALLBOARD, args=["mcp"], cwd=str(server.folder), env=server.env)
        async with Client(stdio_client(stdio), mode=mode) as client:
            versions.add(("stdio", await use(client)))
    print("the package mcp:", ", ".join(f"{version} over {way}" for way, version in sorted(versions)))
    assert len(versions) == 4, versions


async def conform(server):
    """Runs the scenarios that the revision requires; those of the list fail, and no others."""
    async with over_http(server) as client:
        greeted = await client.call_tool(f"agent_{fixture.SYNC}", {"task": "greet 123", "input": fixture.GREETED})
    relayed = await fixture.Relay(server, greeted.structured_content["request_id"]).start()
    url = f"http://localhost:{relayed.sockets[0].getsockname()[1]}/mcp"
    command = [NODE, SUITE, "server", "--url", url, "--requirements", "2026-07-28", "--timeout", "10000"]
    command += ["--expected-failures", str(KNOWN)]
    suite = await asyncio.create_subprocess_exec(*command, cwd=server.folder, stdout=subprocess.PIPE)
    printed = (await suite.communicate())[0].decode()
    relayed.close()
    print(printed)
    assert suite.returncode == 0, f"the conformance suite ended with {suite.returncode}"
    # The suite compares scenarios of extensions with no list.
    listed = set(re.findall(r"^  - (\S+)$", KNOWN.read_text(), re.MULTILINE))
    failed = set(re.findall(r"^(?:✗ |  ~ )([a-z0-9-]+)", printed, re.MULTILINE))
    assert failed == listed, f"fail and are not listed: {failed - listed}; are listed and pass: {listed - failed}"


def main():
    async def both(team, tools):
        await asyncio.gather(use_all(team), conform(tools))

    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as servers:
        team = Server(pathlib.Path(folder) / "team")
        servers.callback(team.stop)
        rest.use(team, PROMTOOL)
        tools = Server(pathlib.Path(folder) / "tools", fixture.agents)
        servers.callback(tools.stop)
        asyncio.run(both(team, tools))


main()
