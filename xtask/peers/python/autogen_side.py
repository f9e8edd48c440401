"""AutoGen: agents of `autogen-core` on its runtime in one process, without tracing. They hand off by publishing to the next one's topic,
which is faster than direct messages, and are asked by direct messages, which is faster than two topics.
"""

import asyncio
import os
from dataclasses import dataclass

from autogen_core import (
    AgentId,
    ClosureAgent,
    MessageContext,
    RoutedAgent,
    SingleThreadedAgentRuntime,
    TopicId,
    TypeSubscription,
    message_handler,
)
from opentelemetry.trace import NoOpTracerProvider

from side import REQUESTS, WIDTH, resident, serve, timed_async

WAITING = 2_000


@dataclass
class State:
    task: str
    artifacts: dict
    output: str


@dataclass
class Number:
    number: int


@dataclass
class Begin:
    count: int


@dataclass
class Question:
    text: str


class Hands(RoutedAgent):
    """Does something with the state, and hands it on."""

    def __init__(self, changes, to):
        super().__init__("")
        self.changes, self.to = changes, TopicId(to, "default")

    @message_handler
    async def hand_on(self, message: State, ctx: MessageContext) -> None:
        output, artifacts = self.changes(message)
        changed = State(message.task, {**message.artifacts, **artifacts}, output)
        await self.publish_message(changed, self.to)


class Worker(RoutedAgent):
    @message_handler
    async def double(self, message: Number, ctx: MessageContext) -> Number:
        return Number(message.number * 2)


class Lead(RoutedAgent):
    """Asks the worker, one request after the other or all at once."""

    def __init__(self, is_fan):
        super().__init__("")
        self.is_fan = is_fan

    @message_handler
    async def begin(self, message: Begin, ctx: MessageContext) -> Number:
        worker = AgentId("worker", "default")
        if self.is_fan:
            parts = (self.send_message(Number(part), worker) for part in range(message.count))
            return Number(sum(answer.number for answer in await asyncio.gather(*parts)))
        for _ in range(message.count):
            answer = await self.send_message(Number(21), worker)
        return answer


class Asker(RoutedAgent):
    """Waits for a person."""

    waiting = 0

    @message_handler
    async def ask(self, message: Question, ctx: MessageContext) -> None:
        Asker.waiting += 1
        await asyncio.get_running_loop().create_future()


async def board(is_fan=False):
    """A runtime with all agents, and the results of chains."""
    runtime, results = SingleThreadedAgentRuntime(tracer_provider=NoOpTracerProvider()), asyncio.Queue()
    hands = {
        "researcher": (lambda state: ("72 of 100", {"notes": f"notes on {state.task}"}), "writer"),
        "writer": (lambda _: ("88 of 100", {"text": "text.md"}), "editor"),
        "editor": (lambda _: ("done", {"final": "final.md"}), "results"),
    }
    for name, (changes, to) in hands.items():
        await Hands.register(runtime, name, lambda changes=changes, to=to: Hands(changes, to))
        await runtime.add_subscription(TypeSubscription(topic_type=name, agent_type=name))

    async def keep(_, message: State, ctx: MessageContext) -> None:
        await results.put(message)

    results_of = [TypeSubscription(topic_type="results", agent_type="results")]
    await ClosureAgent.register_closure(runtime, "results", keep, subscriptions=lambda: results_of)
    await Worker.register(runtime, "worker", lambda: Worker(""))
    await Lead.register(runtime, "lead", lambda: Lead(is_fan))
    await Asker.register(runtime, "asker", lambda: Asker(""))
    runtime.start()
    return runtime, results


async def chains(at_once, parts):
    runtime, results = await board()

    async def work():
        for _ in range(parts // at_once):
            for _ in range(at_once):
                await runtime.publish_message(State("the design", {}, ""), TopicId("researcher", "default"))
            for _ in range(at_once):
                state = await results.get()
                assert state.output == "done" and len(state.artifacts) == 3

    measured = await timed_async(work, parts)
    await runtime.stop()
    return measured


async def chain():
    return await chains(1, 100)


async def crowd():
    return await chains(WIDTH, WIDTH)


async def fan_out():
    runtime, _ = await board(is_fan=True)

    async def work():
        total = await runtime.send_message(Begin(WIDTH), AgentId("lead", "default"))
        assert total.number == WIDTH * (WIDTH - 1)

    measured = await timed_async(work, 1)
    await runtime.stop()
    return measured


async def request():
    runtime, _ = await board()

    async def work():
        for _ in range(20):
            answer = await runtime.send_message(Begin(REQUESTS), AgentId("lead", "default"))
            assert answer.number == 42

    measured = await timed_async(work, 20 * REQUESTS)
    await runtime.stop()
    return measured


async def ask():
    runtime, _ = await board()
    worker = AgentId("worker", "default")

    async def work():
        for _ in range(100):
            assert (await runtime.send_message(Number(21), worker)).number == 42

    measured = await timed_async(work, 100)
    await runtime.stop()
    return measured


async def waiting():
    runtime, _ = await board()
    before = resident()
    asker = AgentId("asker", "default")
    runs = [asyncio.create_task(runtime.send_message(Question("is it good?"), asker)) for _ in range(WAITING)]
    while Asker.waiting < WAITING:
        await asyncio.sleep(0)
    measured = f"{(resident() - before) / len(runs):e}"
    # The runs wait for ever, and end with the process.
    print(measured, flush=True)
    os._exit(0)


serve({"chain": chain, "crowd": crowd, "fan-out": fan_out, "request": request, "ask": ask, "waiting": waiting})
