//! The work that is compared, and who does it.

/// One kind of work.
pub(super) struct Case {
    /// The argument of the programs.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) unit: Unit,
}

/// What a case is measured in. Programs answer with seconds and processor seconds, or with bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Microseconds,
    Milliseconds,
    /// Memory is used again once it was freed, so each measurement has a process of its own.
    Kibibytes,
}

const fn case(name: &'static str, title: &'static str, unit: Unit) -> Case {
    Case { name, title, unit }
}

pub(super) const CASES: [Case; 8] = [
    case("chain", "chain of three, one at a time", Unit::Microseconds),
    case("crowd", "chain of three, 1,000 at once", Unit::Microseconds),
    case("fan-out", "fan-out to 1,000 and join", Unit::Milliseconds),
    case("request", "request and reply in a run, ten a run", Unit::Microseconds),
    case("ask", "request and reply without a run", Unit::Microseconds),
    case("durable-chain", "durable chain of three, one at a time", Unit::Milliseconds),
    case("interrupt", "durable run, interrupted and resumed", Unit::Milliseconds),
    case("waiting", "memory of a run that waits", Unit::Kibibytes),
];

/// Somebody who does cases.
pub(super) struct Side {
    /// The name in the results.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) program: Program,
    /// The cases that it can do.
    pub(super) cases: &'static [&'static str],
}

/// How a side is started; the name of the case is an argument.
#[derive(Clone, Copy)]
pub(super) enum Program {
    /// The benchmark of callboard; the name of the case ends with this.
    Callboard(&'static str),
    /// A file of `xtask/peers/python`, and an argument after the case.
    Python(&'static str, Option<&'static str>),
    /// A side of the package in `xtask/peers/rust`.
    Rust(&'static str),
}

/// The side that the others are compared with is the first.
pub(super) const SIDES: [Side; 12] = [
    Side {
        name: "callboard",
        title: "callboard",
        program: Program::Callboard(""),
        cases: &["chain", "crowd", "fan-out", "request", "ask", "durable-chain", "interrupt", "waiting"],
    },
    Side {
        name: "callboard-steps",
        title: "callboard, agents that act through steps",
        program: Program::Callboard("-steps"),
        cases: &["durable-chain"],
    },
    Side {
        name: "langgraph",
        title: "LangGraph",
        program: Program::Python("langgraph_side.py", None),
        cases: &["chain", "crowd", "fan-out", "request", "waiting"],
    },
    Side {
        name: "langgraph-sync",
        title: "LangGraph, durability `sync`",
        program: Program::Python("langgraph_side.py", Some("sync")),
        cases: &["durable-chain", "interrupt"],
    },
    Side {
        name: "langgraph-async",
        title: "LangGraph, durability `async` (its default)",
        program: Program::Python("langgraph_side.py", Some("async")),
        cases: &["durable-chain", "interrupt"],
    },
    Side {
        name: "autogen",
        title: "AutoGen Core",
        program: Program::Python("autogen_side.py", None),
        cases: &["chain", "crowd", "fan-out", "request", "ask", "waiting"],
    },
    Side {
        name: "agent-framework",
        title: "Microsoft Agent Framework",
        program: Program::Python("agent_framework_side.py", None),
        cases: &["chain", "crowd", "fan-out", "request", "durable-chain", "interrupt", "waiting"],
    },
    Side {
        name: "openai-agents",
        title: "OpenAI Agents SDK",
        program: Program::Python("openai_agents_side.py", None),
        cases: &["chain", "crowd", "fan-out", "request", "interrupt", "waiting"],
    },
    Side {
        name: "duroxide",
        title: "duroxide",
        program: Program::Rust("duroxide"),
        cases: &["durable-chain", "interrupt", "waiting"],
    },
    Side {
        name: "salvor",
        title: "salvor",
        program: Program::Rust("salvor"),
        cases: &["chain", "crowd", "durable-chain", "interrupt", "waiting"],
    },
    Side {
        name: "kameo",
        title: "kameo",
        program: Program::Rust("kameo"),
        cases: &["chain", "crowd", "fan-out", "ask"],
    },
    Side {
        name: "ractor",
        title: "ractor",
        program: Program::Rust("ractor"),
        cases: &["chain", "crowd", "fan-out", "ask"],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_name_cases_that_are_there_and_callboard_does_all() {
        for side in &SIDES {
            for name in side.cases {
                assert!(CASES.iter().any(|case| case.name == *name), "{}: {name}", side.name);
            }
        }
        assert!(CASES.iter().all(|case| SIDES[0].cases.contains(&case.name)));
    }
}
