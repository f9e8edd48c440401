#!/usr/bin/env python3
"""A relay between the webhooks of callboard and Slack (docs/webhooks.md): approvals become messages with buttons, clicks become decisions.

It keeps nothing. Set these variables of the environment:

CALLBOARD_SECRET  the secret of the webhook, whsec_…
CALLBOARD_URL     where decisions are sent: http://127.0.0.1:7420/v1/channels/webhooks/slack
SLACK_URL         the incoming webhook of the Slack app
SLACK_SECRET      the signing secret of the Slack app
PEOPLE            which account is which person: U024BE7LH=ann,U0G9QF9C6=bob
PORT              where it listens on 127.0.0.1: callboard posts to /approvals, Slack to /clicks
"""
import base64, hashlib, hmac, http.server, json, os, time, urllib.error, urllib.parse, urllib.request, uuid

KEY = base64.b64decode(os.environ["CALLBOARD_SECRET"].strip().removeprefix("whsec_"))
SLACK_KEY = os.environ["SLACK_SECRET"].strip().encode()
PEOPLE = dict(pair.split("=", 1) for pair in os.environ["PEOPLE"].split(","))
MOST = 1 << 20  # bytes of a request
SHOWN = 2900  # characters of a text in Slack; a longer card is not decided there


def sign(id, at, body):
    digest = hmac.digest(KEY, f"{id}.{at}.".encode() + body, "sha256")
    return "v1," + base64.b64encode(digest).decode()


def is_new(at):
    return at.isdigit() and abs(time.time() - int(at)) <= 300


def is_of_callboard(headers, body):
    id, at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    given = headers.get("webhook-signature", "").split(" ")
    return is_new(at) and any(hmac.compare_digest(sign(id, at, body), one) for one in given)


def is_of_slack(headers, body):
    at = headers.get("X-Slack-Request-Timestamp", "")
    digest = hmac.new(SLACK_KEY, f"v0:{at}:".encode() + body, hashlib.sha256).hexdigest()
    return is_new(at) and hmac.compare_digest("v0=" + digest, headers.get("X-Slack-Signature", ""))


def post(url, value, headers=()):
    """The status and the JSON of the answer, also of one that refuses."""
    body = json.dumps(value).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json", **dict(headers(body) if headers else {})})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            status, text = answer.status, answer.read(MOST)
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read(MOST)
    try:
        return status, json.loads(text)
    except ValueError:
        return status, {}


def decide(decision):
    def headers(body):
        id, at = f"msg_{uuid.uuid4().hex}", str(int(time.time()))
        return {"webhook-id": id, "webhook-timestamp": at, "webhook-signature": sign(id, at, body)}

    return post(os.environ["CALLBOARD_URL"], decision, headers)


def plain(text):
    return {"type": "plain_text", "text": text, "emoji": False}  # no markup, no mentions, no links


def button(label, response, value):
    return {"type": "button", "text": plain(label), "action_id": response, "value": value}


def shown(message):
    """What Slack shows of a message."""
    kind, data = message["type"], message.get("data", {})
    if kind == "approval.opened":
        blocks = [{"type": "section", "text": plain(data["card"][:SHOWN])}]
        if data["is_cut"] or len(data["card"]) > SHOWN:
            blocks.append({"type": "section", "text": plain("This is cut: decide where all of it is shown.")})
        else:
            value = json.dumps({"approval": data["approval"], "nonce": data["nonce"]})
            buttons = [button("Approve", "approve", value), button("Deny", "deny", value)]
            blocks.append({"type": "actions", "elements": buttons})
    elif kind == "approval.closed":
        blocks = [{"type": "section", "text": plain(f"{data['agent']} {data['action']} {data['target']}: {data['outcome']['text']}"[:SHOWN])}]
    elif kind == "approval.reminded":
        blocks = [{"type": "section", "text": plain(f"Still waits: {data['agent']} {data['action']} {data['target']}"[:SHOWN])}]
    else:
        return None  # a ping, or something that a later version sends
    return {"text": "callboard", "blocks": blocks}


def clicked(payload):
    """Decides, and shows in place of the buttons what came of it."""
    [action] = payload["actions"]
    person = PEOPLE.get(payload["user"]["id"])
    if person is None:
        return
    decision = {**json.loads(action["value"]), "response": action["action_id"], "person": person}
    status, answer = decide(decision)
    told = answer.get("outcome") or answer.get("detail") or f"callboard answers with {status}"
    is_final = answer.get("decided") or status == 409
    card = payload["message"]["blocks"][:1] if is_final else payload["message"]["blocks"]
    post(payload["response_url"], {"replace_original": True, "text": "callboard", "blocks": [*card, {"type": "section", "text": plain(told[:SHOWN])}]})


class Relay(http.server.BaseHTTPRequestHandler):
    timeout = 10

    def do_POST(self):
        length = int(self.headers.get("Content-Length", "0"))
        body = self.rfile.read(length) if 0 <= length <= MOST else b""
        self.answer(*self.handled(body))

    def handled(self, body):
        if self.path == "/approvals" and is_of_callboard(self.headers, body):
            message = shown(json.loads(body))
            status = post(os.environ["SLACK_URL"], message)[0] if message else 200
            return (200 if status < 300 else 502), None  # callboard sends it again
        if self.path == "/clicks" and is_of_slack(self.headers, body):
            [payload] = urllib.parse.parse_qs(body.decode())["payload"]
            return 200, json.loads(payload)
        return 401, None

    def answer(self, status, click):
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()
        self.wfile.flush()
        if click:
            clicked(click)  # after the answer, which Slack wants within 3 s


http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Relay).serve_forever()
