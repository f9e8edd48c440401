"""Microsoft Agent Framework: workflows of executors, built beforehand, without instrumentation."""

import asyncio
import tempfile
from dataclasses import dataclass

from agent_framework import Executor, FileCheckpointStorage, WorkflowBuilder, WorkflowContext, handler, response_handler
from agent_framework.observability import disable_instrumentation

from side import REQUESTS, WIDTH, resident, serve, timed_async

WAITING = 1_000


@dataclass
class Number:
    number: int


class Hands(Executor):
    """Does something with the state, and hands it on."""

    def __init__(self, name, changes):
        super().__init__(id=name)
        self.changes = changes

    @handler
    async def hand_on(self, state: dict, ctx: WorkflowContext[dict]) -> None:
        output, artifacts = self.changes(state)
        await ctx.send_message({**state, "artifacts": {**state["artifacts"], **artifacts}, "output": output})


class Editor(Executor):
    @handler
    async def finish(self, state: dict, ctx: WorkflowContext[None, dict]) -> None:
        artifacts = {**state["artifacts"], "final": "final.md"}
        await ctx.yield_output({**state, "artifacts": artifacts, "output": "done"})


class Asker(Executor):
    """Asks a person."""

    @handler
    async def ask(self, state: dict, ctx: WorkflowContext[None, str]) -> None:
        await ctx.request_info(request_data="is it good?", response_type=str)

    @response_handler
    async def answered(self, question: str, answer: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(answer)


class Lead(Executor):
    """Sends a message for each part."""

    @handler
    async def begin(self, width: int, ctx: WorkflowContext[Number]) -> None:
        for part in range(width):
            await ctx.send_message(Number(part))


class Worker(Executor):
    @handler
    async def double(self, message: Number, ctx: WorkflowContext[Number]) -> None:
        await ctx.send_message(Number(message.number * 2))


class Join(Executor):
    """Waits for all parts. One worker with as many messages is faster than as many workers between edges that fan out and in."""

    def __init__(self):
        super().__init__(id="join")
        self.parts = []

    @handler
    async def join(self, part: Number, ctx: WorkflowContext[None, int]) -> None:
        self.parts.append(part.number)
        if len(self.parts) == WIDTH:
            await ctx.yield_output(sum(self.parts))
            self.parts = []


class Requester(Executor):
    """Asks the worker, and asks again when it has the answer."""

    @handler
    async def begin(self, count: int, ctx: WorkflowContext[Number]) -> None:
        self.left = count
        await ctx.send_message(Number(21))

    @handler
    async def answered(self, answer: Number, ctx: WorkflowContext[Number, int]) -> None:
        self.left -= 1
        if self.left:
            await ctx.send_message(Number(21))
        else:
            await ctx.yield_output(answer.number)


def writer():
    return Hands("writer", lambda _: ("88 of 100", {"text": "text.md"}))


def a_chain(storage=None):
    researcher = Hands("researcher", lambda state: ("72 of 100", {"notes": f"notes on {state['task']}"}))
    steps = [researcher, writer(), Editor(id="editor")]
    return WorkflowBuilder(start_executor=researcher, checkpoint_storage=storage).add_chain(steps).build()


def an_interrupted_chain(storage=None):
    start, asker = writer(), Asker(id="editor")
    return WorkflowBuilder(start_executor=start, checkpoint_storage=storage).add_edge(start, asker).build()


def task():
    return {"task": "the design", "artifacts": {}, "output": ""}


async def finish(workflow):
    [state] = (await workflow.run(task())).get_outputs()
    assert state["output"] == "done" and len(state["artifacts"]) == 3


async def one_at_a_time(workflow, parts):
    async def work():
        for _ in range(parts):
            await finish(workflow)

    return await timed_async(work, parts)


async def chain():
    return await one_at_a_time(a_chain(), 50)


async def crowd():
    # A workflow does one run at a time.
    workflows = [a_chain() for _ in range(WIDTH)]

    async def work():
        await asyncio.gather(*map(finish, workflows))

    return await timed_async(work, WIDTH)


async def fan_out():
    lead, worker, join = Lead(id="lead"), Worker(id="worker"), Join()
    workflow = WorkflowBuilder(start_executor=lead).add_chain([lead, worker, join]).build()

    async def work():
        assert (await workflow.run(WIDTH)).get_outputs() == [WIDTH * (WIDTH - 1)]

    return await timed_async(work, 1)


async def request():
    requester, worker = Requester(id="lead"), Worker(id="worker")
    builder = WorkflowBuilder(start_executor=requester).add_edge(requester, worker).add_edge(worker, requester)
    workflow = builder.build()

    async def work():
        for _ in range(5):
            assert (await workflow.run(REQUESTS)).get_outputs() == [42]

    return await timed_async(work, 5 * REQUESTS)


async def durable_chain():
    with tempfile.TemporaryDirectory() as folder:
        return await one_at_a_time(a_chain(FileCheckpointStorage(folder)), 10)


async def interrupted():
    with tempfile.TemporaryDirectory() as folder:
        workflow = an_interrupted_chain(FileCheckpointStorage(folder))

        async def work():
            for _ in range(10):
                [question] = (await workflow.run(task())).get_request_info_events()
                assert (await workflow.run(responses={question.request_id: "yes"})).get_outputs() == ["yes"]

        return await timed_async(work, 10)


async def waiting():
    await an_interrupted_chain().run(task())
    before = resident()
    workflows = [an_interrupted_chain() for _ in range(WAITING)]
    for workflow in workflows:
        [_] = (await workflow.run(task())).get_request_info_events()
    return f"{(resident() - before) / WAITING:e}"


disable_instrumentation()
serve({
    "chain": chain,
    "crowd": crowd,
    "fan-out": fan_out,
    "request": request,
    "durable-chain": durable_chain,
    "interrupt": interrupted,
    "waiting": waiting,
})
