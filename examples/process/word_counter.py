#!/usr/bin/env python3
"""Counts words, as a process agent of callboard: JSON lines on standard input and output (docs/process-agents.md)."""
import collections, itertools, json, sys

ids = itertools.count(1)


def tell(**line):
    print(json.dumps(line), flush=True)


def hear():
    line = sys.stdin.readline()
    return json.loads(line) if line else sys.exit()  # nobody speaks any more


def ask(**request):
    tell(id=next(ids), **request)
    answer = hear()
    if answer["type"] == "failed":
        raise RuntimeError(answer["error"])
    return answer  # a result; for a step that is not recorded yet, the word to go


hear()  # hello
tell(type="ready", protocol=2)
while True:
    turn = hear()
    try:
        step = ask(type="step", name="count")  # counted once, also if the turn is repeated
        counts = step.get("value")
        if step["type"] == "go":
            counts = dict(collections.Counter(turn["input"].lower().split()).most_common(3))
            tell(type="step_done", id=step["id"], value=counts)
        ask(type="context_set", key="project:words", value=json.dumps(counts))  # its own memory
        title = ask(type="delegate", to="editor", body="find a title", input=counts)["value"]
        tell(type="command", turn=turn["id"], output={"title": title, "counts": counts})
    except Exception as error:
        tell(type="error", turn=turn["id"], text=str(error))
