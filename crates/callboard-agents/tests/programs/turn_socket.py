# The socket of a turn, as any program may use it. Programs share it: a lock keeps the answers of one from the others.
import fcntl, json, os, socket, time

line, rest, asked = socket.socket(fileno=os.dup(3)), b"", 0

# The next line on the socket.
def heard():
    global rest
    while b"\n" not in rest:
        part = line.recv(65536)
        if not part:
            return None
        rest += part
    first, rest = rest.split(b"\n", 1)
    return json.loads(first)

def request(**fields):
    global asked
    asked += 1
    number = os.getpid() * 1000000 + asked
    fcntl.lockf(3, fcntl.LOCK_EX)
    try:
        line.sendall(b"\n" + json.dumps(dict(fields, id=number)).encode() + b"\n")
        while (answer := heard())["id"] != number:
            pass
        del answer["id"]
        return answer
    finally:
        fcntl.lockf(3, fcntl.LOCK_UN)

# The answer to a delegation that the turn waits for, or its refusal.
def delegated(to, **fields):
    answer = request(type="delegate", to=to, body="work", wait=True, **fields)
    while answer.get("status", "ack") == "ack" and answer["type"] != "failed":
        answer = request(type="wait", request=answer["request"])
        time.sleep(0.01)
    return answer
