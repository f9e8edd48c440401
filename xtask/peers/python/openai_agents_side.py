"""OpenAI Agents SDK, without tracing. It has no agents without a model: here the model is a function that answers at once with what
the agent is to do.
"""

import asyncio
import itertools
import os
import tempfile
from dataclasses import dataclass, field

from agents import Agent, Model, ModelResponse, RunConfig, Runner, RunState, Usage, function_tool, handoff, set_tracing_disabled
from agents.testing import assistant_message, function_call

from side import REQUESTS, WIDTH, resident, serve, timed_async

WAITING = 1_000
CONFIG = RunConfig(tracing_disabled=True)
NUMBERS = itertools.count()


class Answers(Model):
    """Answers with what a function makes of the results that it has so far."""

    def __init__(self, answer):
        self.answer = answer

    async def get_response(self, system_instructions, input, *_, **__):
        items = [] if isinstance(input, str) else input
        results = [item for item in items if item.get("type") == "function_call_output"]
        return ModelResponse(output=self.answer(results), usage=Usage(), response_id=None)

    def stream_response(self, *_, **__):
        raise NotImplementedError


@dataclass
class State:
    artifacts: dict = field(default_factory=dict)


def text(it):
    return [assistant_message(it)]


def call(tool, arguments="{}"):
    return function_call(tool, arguments, call_id=f"call-{next(NUMBERS)}")


def agent(name, answer, **settings):
    return Agent(name=name, model=Answers(answer), **settings)


def handing_on(to, artifacts):
    return handoff(to, on_handoff=lambda ctx: ctx.context.artifacts.update(artifacts))


def a_chain():
    editor = agent("editor", lambda _: text("done"))
    writer = agent("writer", lambda _: [call("transfer_to_editor")], handoffs=[handing_on(editor, {"text": "text.md"})])
    to_writer = handing_on(writer, {"notes": "notes on the design"})
    return agent("researcher", lambda _: [call("transfer_to_writer")], handoffs=[to_writer])


async def finish(first):
    state = State()
    result = await Runner.run(first, "the design", context=state, run_config=CONFIG)
    state.artifacts["final"] = "final.md"
    assert result.final_output == "done" and len(state.artifacts) == 3


async def chain():
    first = a_chain()

    async def work():
        for _ in range(20):
            await finish(first)

    return await timed_async(work, 20)


async def crowd():
    first = a_chain()

    async def work():
        await asyncio.gather(*(finish(first) for _ in range(WIDTH)))

    return await timed_async(work, WIDTH)


def asking(requests, at_once):
    """An agent that has another one as a tool."""
    worker = agent("worker", lambda _: text("42"))

    def answer(results):
        if len(results) == requests:
            assert all(result["output"] == "42" for result in results)
            return text("done")
        return [call("double", '{"input": "21"}') for _ in range(at_once)]

    return agent("lead", answer, tools=[worker.as_tool("double", "Doubles a number", run_config=CONFIG)])


async def a_run(lead):
    result = await Runner.run(lead, "work", run_config=CONFIG, max_turns=REQUESTS + 2)
    assert result.final_output == "done"


async def fan_out():
    lead = asking(WIDTH, WIDTH)
    return await timed_async(lambda: a_run(lead), 1)


async def request():
    lead = asking(REQUESTS, 1)
    return await timed_async(lambda: a_run(lead), REQUESTS)


@function_tool(needs_approval=True)
def publish() -> str:
    return "published"


def an_asker():
    return agent("editor", lambda results: text("yes") if results else [call("publish")], tools=[publish])


async def interrupted():
    asker = an_asker()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "state.json")

        async def work():
            for _ in range(5):
                state = (await Runner.run(asker, "the design", run_config=CONFIG)).to_state()
                with open(path, "w") as file:
                    file.write(state.to_string())
                    file.flush()
                    os.fsync(file.fileno())
                with open(path) as file:
                    state = await RunState.from_string(asker, file.read())
                [question] = state.get_interruptions()
                state.approve(question)
                assert (await Runner.run(asker, state, run_config=CONFIG)).final_output == "yes"

        return await timed_async(work, 5)


async def waiting():
    asker = an_asker()
    await Runner.run(asker, "the design", run_config=CONFIG)
    before = resident()
    states = [(await Runner.run(asker, "the design", run_config=CONFIG)).to_state() for _ in range(WAITING)]
    measured = f"{(resident() - before) / len(states):e}"
    return measured


set_tracing_disabled(True)
serve({"chain": chain, "crowd": crowd, "fan-out": fan_out, "request": request, "interrupt": interrupted, "waiting": waiting})
