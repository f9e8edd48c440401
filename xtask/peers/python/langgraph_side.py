"""LangGraph: compiled graphs, with edges known beforehand. In memory, one run after the other goes by `invoke`, which is faster than
`ainvoke` and than the functional API, and many go by `batch`, which is twice as fast as `ainvoke` for all at once; on disk by `ainvoke`,
as `AsyncSqliteSaver` is faster than `SqliteSaver`.
"""

import operator
import os
import sys
import tempfile
import uuid
from typing import Annotated, TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt

from side import REQUESTS, WIDTH, resident, serve, timed, timed_async

# When a step is written: `sync` before the next one begins, `async`, the default, while it runs.
DURABILITY = sys.argv[2] if len(sys.argv) > 2 else None
WAITING = 2_000


def merge(left, right):
    return {**left, **right}


class Chain(TypedDict):
    task: str
    artifacts: Annotated[dict, merge]
    output: str


def researcher(state):
    return {"artifacts": {"notes": f"notes on {state['task']}"}, "output": "72 of 100"}


def writer(_):
    return {"artifacts": {"text": "text.md"}, "output": "88 of 100"}


def editor(_):
    return {"artifacts": {"final": "final.md"}, "output": "done"}


async def async_researcher(state):
    return researcher(state)


async def async_writer(state):
    return writer(state)


async def async_editor(state):
    return editor(state)


async def asker(_):
    return {"output": interrupt("is it good?")}


def graph_of(state, nodes, checkpointer=None):
    """Nodes one after the other."""
    graph = StateGraph(state)
    before = START
    for name, node in nodes.items():
        graph.add_node(name, node)
        graph.add_edge(before, name)
        before = name
    graph.add_edge(before, END)
    return graph.compile(checkpointer=checkpointer)


def a_chain():
    return graph_of(Chain, {"researcher": researcher, "writer": writer, "editor": editor})


def an_async_chain(checkpointer):
    nodes = {"researcher": async_researcher, "writer": async_writer, "editor": async_editor}
    return graph_of(Chain, nodes, checkpointer)


def an_interrupted_chain(checkpointer):
    return graph_of(Chain, {"writer": async_writer, "editor": asker}, checkpointer)


def task():
    return {"task": "the design"}


def a_thread():
    return {"configurable": {"thread_id": str(uuid.uuid4())}}


def finished(state):
    assert state["output"] == "done" and len(state["artifacts"]) == 3


def chain():
    graph = a_chain()

    def work():
        for _ in range(50):
            finished(graph.invoke(task()))

    return timed(work, 50)


def crowd():
    graph = a_chain()

    def work():
        for state in graph.batch([task() for _ in range(WIDTH)]):
            finished(state)

    return timed(work, WIDTH)


class Fan(TypedDict):
    squares: Annotated[list, operator.add]


async def fan_out():
    async def lead(_):
        return {}

    async def worker(part):
        return {"squares": [part * part]}

    graph = StateGraph(Fan)
    graph.add_node("lead", lead)
    graph.add_node("worker", worker)
    graph.add_edge(START, "lead")
    graph.add_conditional_edges("lead", lambda _: [Send("worker", part) for part in range(WIDTH)], ["worker"])
    graph.add_edge("worker", END)
    graph = graph.compile()

    async def work():
        assert len((await graph.ainvoke({"squares": []}))["squares"]) == WIDTH

    return await timed_async(work, 1)


class Number(TypedDict):
    number: int


def request():
    worker = graph_of(Number, {"worker": lambda state: {"number": state["number"] * 2}})

    def lead(_):
        for _ in range(REQUESTS):
            number = worker.invoke({"number": 21})["number"]
        return {"number": number}

    graph = graph_of(Number, {"lead": lead})

    def work():
        for _ in range(10):
            assert graph.invoke({"number": 0})["number"] == 42

    return timed(work, 10 * REQUESTS)


async def on_disk(build, work, parts):
    """Measures with the saver as it is: a file in WAL mode, and SQLite's default of `synchronous`, which is FULL."""
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncSqliteSaver.from_conn_string(os.path.join(folder, "saver.db")) as saver:
            graph = build(saver)
            measured = await timed_async(lambda: work(graph), parts)
            async with saver.conn.execute("PRAGMA synchronous") as row:
                assert await row.fetchone() == (2,)
            return measured


async def durable_chain():
    async def work(graph):
        for _ in range(10):
            finished(await graph.ainvoke(task(), a_thread(), durability=DURABILITY))

    return await on_disk(an_async_chain, work, 10)


async def interrupted():
    async def work(graph):
        for _ in range(10):
            thread = a_thread()
            assert "__interrupt__" in await graph.ainvoke(task(), thread, durability=DURABILITY)
            assert (await graph.ainvoke(Command(resume="yes"), thread, durability=DURABILITY))["output"] == "yes"

    return await on_disk(an_interrupted_chain, work, 10)


async def waiting():
    graph = an_interrupted_chain(InMemorySaver())
    await graph.ainvoke(task(), a_thread())
    before = resident()
    for _ in range(WAITING):
        await graph.ainvoke(task(), a_thread())
    return f"{(resident() - before) / WAITING:e}"


serve({
    "chain": chain,
    "crowd": crowd,
    "fan-out": fan_out,
    "request": request,
    "durable-chain": durable_chain,
    "interrupt": interrupted,
    "waiting": waiting,
})
