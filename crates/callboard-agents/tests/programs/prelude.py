# The beginning of a program that is a process agent: it begins, hears turns and ends them.
import json, os, sys

def tell(**line):
    print(json.dumps(line), flush=True)

def hear():
    line = sys.stdin.readline()
    return json.loads(line) if line else sys.exit()

def begin(version=2):
    hello = hear()
    tell(type="ready", protocol=version)
    return hello

def ask(**request):
    tell(id=1, **request)
    return hear()

# Its first value is the output; the others are more fields of the command.
def end(turn, *output, **command):
    tell(type="command", turn=turn["id"], **dict(zip(["output"], output)), **command)

