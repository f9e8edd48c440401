"""Uses the HTTP interface of `callboard serve` with the package `httpx` of PyPI, and has its figures read by Prometheus."""

import json
import subprocess

import httpx


def events(client, path, last=None, most=None):
    """The numbers and kinds of a stream, from the one after `last`, until it ends or there are so many."""
    headers = {"Last-Event-ID": last} if last else {}
    seen, fields = [], {}
    with client.stream("GET", path, headers=headers) as answer:
        assert answer.status_code == 200 and answer.headers["content-type"] == "text/event-stream", answer
        for line in answer.iter_lines():
            if line:
                field, _, value = line.partition(": ")
                fields[field] = value
                continue
            if "id" in fields:
                seen.append((fields["id"], fields["event"]))
            fields = {}
            if most and len(seen) == most:
                break
    return seen


def use(server, promtool):
    with httpx.Client(base_url=server.address, headers={"Authorization": f"Bearer {server.token}"}, trust_env=False) as client:
        task = {"to": "coder", "body": "say hello"}
        asked = [client.post("/v1/delegations", json=task, headers={"Idempotency-Key": "one"}) for _ in range(2)]
        assert [answer.status_code for answer in asked] == [202, 202], asked
        assert asked[0].json()["request_id"] == asked[1].json()["request_id"], "a key is one delegation"
        path = "/v1/" + asked[0].headers["location"]
        whole = events(client, f"{path}/events?modes=debug")
        begun = events(client, f"{path}/events?modes=debug", most=2)
        rest = events(client, f"{path}/events?modes=debug", last=begun[-1][0])
        assert begun + rest == whole and len(rest) > 1, (begun, rest, whole)
        ended = client.get(path).json()
        assert ended["status"] == "complete" and "say hello" in ended["result"]["output"], ended
        listed = client.get("/v1/delegations", params={"limit": 1}).json()
        assert [row["request_id"] for row in listed["delegations"]] == [ended["request_id"]], listed
        refused = client.post("/v1/delegations", json={**task, "to": "nobody"})
        assert refused.headers["content-type"] == "application/problem+json", refused.headers
        assert (refused.status_code, refused.json()["code"]) == (422, "unknown-agent"), refused.text
        late = client.post(f"{path}/cancel", json={"reason": "too late"})
        assert late.status_code == 409, late.text
        assert httpx.get(f"{server.address}/v1/agents", trust_env=False).status_code == 401
        figures = client.get("/v1/metrics").text
    checked = subprocess.run([promtool, "check", "metrics"], input=figures, capture_output=True, text=True)
    assert (checked.returncode, checked.stderr) == (0, ""), checked.stderr
    assert "callboard_" in figures, json.dumps(figures)
    print(f"httpx: {len(whole)} events; promtool: {len(figures.splitlines())} lines without a finding")
