"""What docs/compared-with-langgraph.md says of LangGraph under [21], asserted.

python3 -m venv venv && venv/bin/pip install langgraph==1.2.22 && venv/bin/python tests/compared/with_langgraph.py
"""

import operator
from typing import Annotated, TypedDict

from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from langgraph.graph import START, StateGraph
from langgraph.types import CachePolicy, Command, Send, interrupt


class Seen(TypedDict):
    seen: Annotated[list, operator.add]


class Inner(TypedDict):
    seen: Annotated[list, operator.add]
    own: Annotated[list, operator.add]


def config(thread, **more):
    return {"configurable": {"thread_id": thread}, **more}


def parallel(nodes):
    graph = StateGraph(Seen)
    for name, node in nodes.items():
        graph.add_node(name, node)
        graph.add_edge(START, name)
    return graph.compile(checkpointer=InMemorySaver())


def chain(nodes, **options):
    graph, before = StateGraph(Seen), START
    for name, node in nodes.items():
        graph.add_node(name, node)
        graph.add_edge(before, name)
        before = name
    return graph.compile(checkpointer=InMemorySaver(), **options)


def says(name):
    return lambda state: {"seen": [name]}


def order_of_parallel_writes():
    graph = parallel({name: says(name) for name in ["z", "a", "m"]})
    assert graph.invoke({"seen": []}, config("t"))["seen"] == ["a", "m", "z"]


def recursion_limit():
    for steps, raises in [(2, False), (3, True), (4, True)]:
        graph = chain({f"n{i}": says(i) for i in range(steps)})
        limited = config("t", recursion_limit=3)
        try:
            graph.invoke({"seen": []}, limited)
            assert not raises
        except GraphRecursionError:
            assert raises
        assert graph.get_state(limited).values["seen"] == list(range(min(steps, 3)))
        assert (graph.get_state(limited).next == ()) == (steps <= 3)


def threads():
    graph = chain({"n": says("n")})
    graph.invoke({"seen": ["first"]}, config("t"))
    assert graph.invoke({"seen": ["second"]}, config("t"))["seen"] == ["first", "n", "second", "n"]


def several_sends_to_one_node():
    graph = StateGraph(Seen)
    graph.add_node("work", lambda state: {"seen": [state["item"]]})
    graph.add_conditional_edges(START, lambda state: [Send("work", {"item": item}) for item in (3, 1, 2)])
    assert graph.compile().invoke({"seen": []})["seen"] == [3, 1, 2]


def order_of_interrupts():
    def asks(name):
        return lambda state: {"seen": [interrupt(name + "1"), interrupt(name + "2")]}

    graph = parallel({"z": asks("z"), "a": asks("a")})
    asked = graph.invoke({"seen": []}, config("t"))["__interrupt__"]
    assert [open_.value for open_ in asked] == ["a1", "z1"]
    try:
        graph.invoke(Command(resume="one"), config("t"))
        raise AssertionError("one value for several interrupts was taken")
    except RuntimeError as error:
        assert "multiple pending interrupts" in str(error)
    answers = Command(resume={open_.id: "yes" for open_ in asked})
    assert [open_.value for open_ in graph.invoke(answers, config("t"))["__interrupt__"]] == ["a2", "z2"]


def subgraphs():
    inner = StateGraph(Inner)
    inner.add_node("in", lambda state: {"own": ["inner"], "seen": ["i"]})
    inner.add_edge(START, "in")
    graph = chain({"sub": inner.compile(), "after": says("after")})
    streamed = list(graph.stream({"seen": []}, config("t"), stream_mode="updates"))
    assert [list(item) for item in streamed] == [["sub"], ["after"]]
    streamed = list(graph.stream({"seen": []}, config("u"), stream_mode="updates", subgraphs=True))
    assert [(len(namespace), list(item)) for namespace, item in streamed] == [(1, ["in"]), (0, ["sub"]), (0, ["after"])]
    ended = graph.get_state(config("u"), subgraphs=True)
    assert ended.tasks == () and "own" not in ended.values


def time_travel():
    count = iter(range(1, 100))

    def counts(state):
        return {"seen": [next(count)]}

    graph = chain({"a": counts, "b": counts, "c": counts})
    graph.invoke({"seen": []}, config("t"))
    before_b = next(past for past in graph.get_state_history(config("t")) if past.next == ("b",))
    graph.invoke(None, before_b.config)
    assert graph.get_state(config("t")).values["seen"] == [1, 4, 5], "the thread now ends with the replay"
    edited = graph.update_state(before_b.config, {"seen": ["edited"]})
    assert graph.invoke(None, edited)["seen"] == [1, "edited", 6, 7]
    as_b = graph.update_state(before_b.config, {"seen": ["as b"]}, as_node="b")
    assert graph.invoke(None, as_b)["seen"] == [1, "as b", 8]


def node_caching():
    count = iter(range(1, 100))
    graph = StateGraph(Seen)
    graph.add_node("slow", lambda state: {"seen": [next(count)]}, cache_policy=CachePolicy(ttl=60))
    graph.add_edge(START, "slow")
    graph = graph.compile(cache=InMemoryCache())
    assert graph.invoke({"seen": ["q"]}) == graph.invoke({"seen": ["q"]}) == {"seen": ["q", 1]}


for check in [
    order_of_parallel_writes,
    recursion_limit,
    threads,
    several_sends_to_one_node,
    order_of_interrupts,
    subgraphs,
    time_travel,
    node_caching,
]:
    check()
    print("holds:", check.__name__)
