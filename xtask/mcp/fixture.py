"""The fixture of the conformance suite: agents that answer as the tools do that the suite calls, and a relay between their names.

The suite calls `test_simple_text` with arguments of its own; callboard offers the agent of that name as `agent_test_simple_text`, which takes
a task and an input. The relay translates that, the names of questions and the addresses of resources, and nothing else: what the server
answers is what is checked.
"""

import asyncio
import json
import pathlib
import re
import sys

TOOLS = {
    "test_simple_text", "test_error_handling", "test_tool_with_progress", "test_input_required_result_elicitation",
    "test_input_required_result_request_state", "test_input_required_result_multi_round",
    "test_input_required_result_tampered_state", "test_tool_with_task", "test_streaming_elicitation",
    "slow_compute", "failing_job", "confirm_delete", "multi_input",
}
# A tool that is answered at once, also to clients that know tasks, as only `run_result` is: it reads what the agent of this name has
# answered before.
SYNC = "greet"
GREETED = {"name": "sep-2243"}
# The question that the suite knows by its name; callboard names questions itself.
QUESTION = "user_name"
NAMED = {"test_input_required_result_elicitation", "test_tool_with_task"}
RESOURCES = {"test://static-text": "journal", "test://template/123/data": "journal"}


def agents(folder):
    """Writes the agents, which are programs that run this file."""
    for name in [*TOOLS, SYNC]:
        file = folder / f"{name}.toml"
        file.write_text(f'[agent]\nname = "{name}"\n[agent.process]\ncommand = ["{sys.executable}", "{pathlib.Path(__file__)}"]\n')


class Relay:
    """A port whose requests reach the server with its token, which the suite does not send."""

    def __init__(self, server, run):
        self.server, self.run = server, run
        self.host, self.port = server.address.removeprefix("http://").split(":")
        self.questions = {}

    async def start(self):
        return await asyncio.start_server(self.carry, "127.0.0.1", 0)

    async def carry(self, reader, writer):
        try:
            head, body = await self.request(reader)
            other, out = await asyncio.open_connection(self.host, int(self.port))
            head, body, is_named = self.translated(head, body)
            out.write(head + body)
            answers = asyncio.ensure_future(self.answer(other, writer, is_named))
            leaves = asyncio.ensure_future(reader.read())
            _, rest = await asyncio.wait([answers, leaves], return_when=asyncio.FIRST_COMPLETED)
            for task in rest:
                task.cancel()
            out.close()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def answer(self, other, writer, is_named):
        if is_named:
            writer.write(self.renamed(await other.read()))
        else:
            while chunk := await other.read(65536):
                writer.write(chunk)
                await writer.drain()
        await writer.drain()

    async def request(self, reader):
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        return head, await reader.readexactly(int(length[1])) if length else b""

    def translated(self, head, body):
        """The request with the names of callboard, and whether names of its answer have to be those of the suite."""
        line, *headers = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
        headers = [it for it in headers if not it.lower().startswith((b"connection:", b"content-length:"))]
        is_named = False
        try:
            message = json.loads(body)
            method, params = message["method"], message["params"]
        except (ValueError, KeyError, TypeError):
            method, params = None, {}
        before = params.get("name") or params.get("uri")
        if method == "tools/call" and before in TOOLS:
            params["name"] = f"agent_{before}"
            params["arguments"] = {"task": before, "input": params.get("arguments") or {}}
            is_named = before in NAMED
        elif method == "tools/call" and before == SYNC:
            params["name"], params["arguments"] = "run_result", {"request_id": self.run}
        elif method == "resources/read" and before in RESOURCES:
            params["uri"] = f"callboard://runs/{self.run}/{RESOURCES[before]}"
        if method in ("tools/call", "tasks/update") and isinstance(params.get("inputResponses"), dict):
            params["inputResponses"] = {self.questions.get(it, it): answered(to) for it, to in params["inputResponses"].items()}
        after = params.get("name") or params.get("uri")
        if method and after != before:
            named = b"mcp-name: " + before.encode()
            headers = [b"Mcp-Name: " + after.encode() if it.lower() == named.lower() else it for it in headers]
        if method:
            body = json.dumps(message).encode()
        headers += [b"Connection: close", b"Authorization: Bearer " + self.server.token.encode()]
        if body:
            headers.append(b"Content-Length: %d" % len(body))
        return b"\r\n".join([line, *headers]) + b"\r\n\r\n", body, is_named

    def renamed(self, answer):
        """An answer in which the question has the name that the suite knows."""
        head, body = answer.split(b"\r\n\r\n", 1)
        if b"transfer-encoding: chunked" in head.lower():
            parts, rest = [], body
            while (size := int(rest.split(b"\r\n", 1)[0], 16)) > 0:
                rest = rest.split(b"\r\n", 1)[1]
                parts.append(rest[:size])
                rest = rest[size + 2:]
            body = b"".join(parts)
        if found := re.search(rb'"inputRequests":\{"([^"]+)"', body):
            self.questions[QUESTION] = found[1].decode()
            body = body.replace(found[1], QUESTION.encode())
        lines = [it for it in head.split(b"\r\n") if not it.lower().startswith((b"transfer-encoding:", b"content-length:"))]
        return b"\r\n".join(lines) + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def answered(response):
    """An answer in the one field of callboard's forms, whatever the field of the suite is."""
    content = response.get("content") if isinstance(response, dict) else None
    if isinstance(content, dict) and content:
        return {**response, "content": {"answer": next(iter(content.values()))}}
    return response


# The agents.

def tell(**line):
    print(json.dumps(line), flush=True)


def hear():
    line = sys.stdin.readline()
    return json.loads(line) if line else sys.exit()


def request(*requests):
    """What the requests result in, which are open at the same time."""
    for number, line in enumerate(requests, 1):
        tell(id=number, **line)
    results = {}
    while len(results) < len(requests):
        line = hear()
        results[line["id"]] = line.get("value")
    return [results[number] for number in sorted(results)]


def ask(*questions):
    return request(*({"type": "ask", "question": question} for question in questions))


def work(name, given):
    """The output of an agent, or an error."""
    import time
    if name == "test_simple_text":
        return "This is a simple text response for testing."
    if name in ("test_error_handling", "failing_job"):
        raise ValueError("This tool intentionally returns an error for testing")
    if name == "test_tool_with_progress":
        for _ in range(3):
            request({"type": "delegate", "to": "test_simple_text", "body": "a part of the work"})
        return "done"
    if name == "greet":
        return f"Hello, {given['name']}!"
    if name == "slow_compute":
        time.sleep(given.get("seconds", 0))
        return "computed"
    if name == "multi_input":
        return ask("What is your name?", "What is your favorite color?")
    if name == "test_input_required_result_multi_round":
        return ask("Step 1: What is your name?") + ask("Step 2: What is your favorite color?")
    if name in NAMED or name == "test_streaming_elicitation":
        return "Hello, {}!".format(*ask("What is your name?"))
    return "state-ok: {}".format(*ask("Please confirm"))


def main():
    hear()
    tell(type="ready", protocol=2)
    while True:
        turn = hear()
        try:
            tell(type="command", turn=turn["id"], output=work(turn["agent"], turn["input"]))
        except ValueError as error:
            tell(type="error", turn=turn["id"], text=str(error), terminal=True)


if __name__ == "__main__":
    main()
