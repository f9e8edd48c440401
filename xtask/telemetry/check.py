"""Receives the spans of `callboard serve`, and reads them with the package `opentelemetry-proto` of PyPI. Argument: the program
`callboard`, built with the feature `otel`.
"""

import gzip
import http.server
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse

CALLBOARD = sys.argv[1]
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
STATE = "vendor=1"
SECRET = "a text that is in no span"


class Receiver(http.server.BaseHTTPRequestHandler):
    """Keeps what it receives."""

    requests = []

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers["content-encoding"] == "gzip":
            body = gzip.decompress(body)
        self.requests.append((self.path, dict(self.headers), body))
        answer = ExportTraceServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def value(it):
    return getattr(it, it.WhichOneof("value"))


def received():
    """The spans so far, each with its attributes, and those of what has sent them."""
    spans = []
    for path, headers, body in list(Receiver.requests):
        assert path == "/v1/traces" and headers["content-type"] == "application/x-protobuf", (path, headers)
        assert headers["x-key"] == "a key", headers
        assert SECRET.encode() not in body
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = {it.key: value(it.value) for it in resource.resource.attributes}["service.name"]
            for scope in resource.scope_spans:
                spans += [(span, {it.key: value(it.value) for it in span.attributes}, service) for span in scope.spans]
    return spans


def of_trace(trace):
    return [(span, attributes) for span, attributes, _ in received() if span.trace_id.hex() == trace]


def until(found, what):
    deadline = time.monotonic() + 30
    while not (result := found()):
        assert time.monotonic() < deadline, f"{what} did not come; there are {[span.name for span, _, _ in received()]}"
        time.sleep(0.05)
    return result


def main(folder):
    receiver = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    (folder / ".callboard").mkdir()
    for name in ("state", "run"):
        (folder / name).mkdir(mode=0o700)
    env = {name: text for name, text in os.environ.items() if not name.startswith("OTEL_")}
    env |= {"XDG_STATE_HOME": str(folder / "state"), "XDG_RUNTIME_DIR": str(folder / "run")}
    env |= {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{receiver.server_port}"}
    env |= {"OTEL_EXPORTER_OTLP_HEADERS": "x-key=a%20key", "OTEL_SERVICE_NAME": "board-of-this-check"}
    command = [CALLBOARD, "serve", "--listen", "127.0.0.1:0", "--model", "fake"]
    server = subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True)
    try:
        address = server.stdout.readline().split()[-1]
        added = subprocess.run([CALLBOARD, "tokens", "add", "client"], cwd=folder, env=env, stdout=subprocess.PIPE, text=True, check=True)
        token = added.stdout.strip()

        def ask(path, body=None, **headers):
            headers |= {"authorization": f"Bearer {token}", "content-type": "application/json"}
            request = urllib.request.Request(address + path, body and json.dumps(body).encode(), headers)
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.read().decode()

        task = {"to": "coordinator", "body": SECRET}
        run = json.loads(ask("/v1/delegations", task, traceparent=f"00-{TRACE}-{PARENT}-01", tracestate=STATE))["request_id"]
        malformed = json.loads(ask("/v1/delegations", task, traceparent="00-0-0-01"))["request_id"]
        # The tasks of this token are untrusted: it does not decide that they are not recorded.
        unsampled = json.loads(ask("/v1/delegations", task, traceparent=f"00-{TRACE[::-1]}-{PARENT}-00"))["request_id"]

        def root():
            return [(span, it) for span, it in of_trace(TRACE) if span.parent_span_id.hex() == PARENT]

        [(whole, attributes)] = until(root, "the span of the run")
        assert whole.name == "run coordinator", whole.name
        assert attributes["callboard.run.id"] == run and attributes["callboard.outcome"] == "finished", attributes
        spans = {span.span_id: span for span, _ in of_trace(TRACE)}
        for span, it in of_trace(TRACE):
            kind, parent = it.get("gen_ai.operation.name"), spans.get(span.parent_span_id)
            assert it["callboard.run.id"] == run and span.trace_state == STATE, (it, span.trace_state)
            assert span.start_time_unix_nano <= span.end_time_unix_nano, span
            if kind == "invoke_agent":
                assert span.name == f"invoke_agent {it['gen_ai.agent.name']}", span.name
                assert parent == whole or parent.name.startswith("invoke_agent "), parent
            elif kind == "chat":
                assert span.name == "chat fake" and it["gen_ai.request.model"] == it["gen_ai.provider.name"] == "fake", span
                assert it["gen_ai.usage.input_tokens"] > 0 and it["gen_ai.usage.output_tokens"] > 0, it
                assert parent.name.startswith("invoke_agent "), parent
            elif kind == "execute_tool":
                assert span.name == f"execute_tool {it['gen_ai.tool.name']}" and it["gen_ai.tool.call.id"], span
                assert parent.name.startswith("invoke_agent "), parent
            else:
                assert span == whole, span
        names = [span.name for span in spans.values()]
        assert "invoke_agent coordinator" in names and "execute_tool Task" in names and names.count("chat fake") > 2, names
        assert any(spans[span.parent_span_id].name == "invoke_agent coordinator" for span in spans.values() if span.name == "invoke_agent coder"), names

        # A malformed span is as none: the run has the trace of its own id.
        trace = malformed.replace("-", "")
        until(lambda: [span for span, _ in of_trace(trace) if not span.parent_span_id], "the span of the other run")
        assert "callboard_spans_exported_total" in ask("/v1/metrics")

        until(lambda: [it for _, it in of_trace(TRACE[::-1]) if it["callboard.run.id"] == unsampled], "a span of an untrusted client")

        # Commands are parts of the span that their environment names. This user decides that a trace is not recorded.
        silent = env | {"TRACEPARENT": f"00-{'6' * 32}-{PARENT}-00"}
        subprocess.run([CALLBOARD, "send", "coordinator", SECRET, "--wait"], cwd=folder, env=silent, stdout=subprocess.PIPE, check=True)
        for digit, command in ("7", ["send", "coordinator"]), ("8", ["run", "--model", "fake", "--ephemeral", "--quiet"]):
            parent = {"TRACEPARENT": f"00-{digit * 32}-{PARENT}-01", "TRACESTATE": STATE}
            subprocess.run([CALLBOARD, *command, SECRET], cwd=folder, env=env | parent, stdout=subprocess.PIPE, check=True)

            def begun():
                return [span for span, _ in of_trace(digit * 32) if span.parent_span_id.hex() == PARENT]

            [span] = until(begun, f"the span of {command[0]}")
            assert span.name == "run coordinator" and span.trace_state == STATE, span
    finally:
        server.send_signal(signal.SIGINT)
        assert server.wait(30) == 0, server.returncode
    spans = received()
    assert {service for _, _, service in spans} == {"board-of-this-check"}, spans
    assert not of_trace("6" * 32), "a trace that this user does not record has spans"
    print(f"{len(spans)} spans in {len(Receiver.requests)} requests are as they should be")


with tempfile.TemporaryDirectory() as folder:
    main(pathlib.Path(folder))
