# The beginning of a program that is an MCP server.
import json, os, sys

REVISION = os.environ.get("REVISION", "2025-06-18")
HAS_HANDSHAKE = REVISION < "2026-07-28"
INFO = {"name": "peer", "version": "1"}

def tool(name, description="Does it.", **properties):
    return {"name": name, "description": description, "inputSchema": {"type": "object", "properties": properties}}

TOOLS = [tool("add", "Adds.", a={"type": "number"}, b={"type": "number"})]

def tell(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()

def hear():
    line = sys.stdin.readline()
    return json.loads(line) if line else sys.exit()

def text(*parts, **more):
    return {"content": [{"type": "text", "text": part} for part in parts], **more}

def add(request):
    arguments = request["params"]["arguments"]
    return text(str(arguments["a"] + arguments["b"]))

class Refused(Exception):
    pass

# What is answered to a request.
def result(request, call):
    method, params = request["method"], request.get("params") or {}
    if not HAS_HANDSHAKE:
        asked = params.get("_meta", {}).get("io.modelcontextprotocol/protocolVersion")
        if asked != REVISION:
            raise Refused(-32022, "this revision names itself in each request, and not %s" % asked)
    if method == "initialize" and HAS_HANDSHAKE:
        return {"protocolVersion": REVISION, "capabilities": {"tools": {"listChanged": True}}, "serverInfo": INFO}
    if method == "server/discover" and not HAS_HANDSHAKE:
        return {"resultType": "complete", "supportedVersions": [REVISION], "capabilities": {"tools": {}}, "ttlMs": 0,
                "cacheScope": "private"}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return call(request)
    raise Refused(-32601, "no such method: %s" % method)

def answer(request, call):
    try:
        return {"id": request["id"], "result": result(request, call)}
    except Refused as refused:
        return {"id": request["id"], "error": {"code": refused.args[0], "message": refused.args[1]}}

def serve(call=add, heard=lambda notification: None):
    while True:
        message = hear()
        if "id" not in message:
            heard(message)
        elif "method" in message:
            answered = answer(message, call)
            if answered["id"] is not None and answered.get("result", True) is not None:
                tell(answered)

