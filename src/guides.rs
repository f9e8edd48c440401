//! The README and the guides of docs/, whose examples run as documentation tests.

#[doc = include_str!("../README.md")]
struct Readme;

#[doc = include_str!("../docs/conversations.md")]
struct ConversationGuide;

#[cfg(feature = "workflow-text")]
#[doc = include_str!("../docs/workflows.md")]
struct WorkflowGuide;

#[cfg(feature = "workflow-text")]
#[doc = include_str!("../docs/workflow-templates.md")]
struct TemplateGuide;

#[doc = include_str!("../docs/compared-with-langgraph.md")]
struct ComparedWithLangGraph;

#[cfg(feature = "testing")]
#[doc = include_str!("../docs/testing.md")]
struct TestingGuide;

#[cfg(feature = "workflow-text")]
#[doc = include_str!("../docs/workflow-drawing.md")]
struct DrawingGuide;

#[cfg(feature = "sled")]
#[doc = include_str!("../docs/embed.md")]
struct EmbedGuide;

#[cfg(feature = "testing")]
#[doc = include_str!("../docs/test-trees.md")]
struct TestTreesGuide;
