//! The sections for modes and tools.

use callboard::actors::Mode;
use callboard::messages::Effect;

use crate::tool::Tools;

/// The condition under which an agent has a section that is not the author's.
#[derive(Clone, Copy)]
pub(super) enum When {
    Mode(Mode),
    AnyTool,
    Effect(Effect),
}

/// The sections for modes and tools.
pub(super) const USUAL: [(When, &str, u16, &str); 6] = [
    (
        When::AnyTool,
        "tools",
        20,
        "Use your tools to find out what you do not know; do not guess at what a tool can tell. When a tool fails, read why \
         before you use it again. Calls that do not depend on each other go in one message.",
    ),
    (
        When::Effect(Effect::Writes),
        "files",
        30,
        "Read a file before you change it, change no more than the task asks for, and keep to the way it is written.",
    ),
    (
        When::Effect(Effect::Executes),
        "shell",
        40,
        "Run programs with care: nothing that waits for input, nothing that outlives the task, and look at what they print \
         before you go on.",
    ),
    (
        When::Mode(Mode::Plan),
        "planning",
        50,
        "You plan, and carry nothing out. Answer with the steps in their order, what each needs and how one sees that it is \
         done, and what is uncertain.",
    ),
    (
        When::Mode(Mode::Explore),
        "research",
        50,
        "You read and report, and leave everything as it is. Say where you found what you report, and what you looked for and \
         did not find.",
    ),
    (When::Mode(Mode::General), "default", 50, "Answer what is asked. Say so when you do not know, or cannot do it."),
];

impl When {
    /// Whether an agent of this mode, with these tools, has the section.
    pub(super) fn holds(self, mode: Mode, tools: &Tools) -> bool {
        match self {
            Self::Mode(wanted) => wanted == mode,
            Self::AnyTool => !tools.is_empty(),
            Self::Effect(effect) => tools.specs().any(|spec| spec.effect == effect),
        }
    }
}
