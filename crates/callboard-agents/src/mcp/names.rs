//! Tool names that providers accept, made of the names of servers and their tools.

use sha2::{Digest, Sha256};

/// The longest tool name that providers accept, in characters.
const MAX: usize = 64;

/// The longest name of a server, in characters: enough remains for the tool's name.
pub(super) const MAX_SERVER: usize = 32;

/// Whether a server may have this name. It has no `__` and neither begins nor ends with `_`, so that tools of two servers never
/// have the same name.
pub(super) fn is_server(name: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (1..=MAX_SERVER).contains(&name.len())
        && name.chars().all(is_inner)
        && !name.contains("__")
        && !name.starts_with('_')
        && !name.ends_with('_')
}

/// The name of a tool for models. An invalid name is changed, and a part of its hash is added to keep it unique.
pub(super) fn of_tool(server: &str, tool: &str) -> String {
    let begin = format!("mcp__{server}__");
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !tool.is_empty() && tool.chars().all(is_plain) && begin.len() + tool.len() <= MAX {
        return begin + tool;
    }
    let hash: String = Sha256::digest(tool).iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    let room = MAX.saturating_sub(begin.len() + 1 + hash.len());
    let fit: String = tool.chars().map(|c| if is_plain(c) { c } else { '_' }).take(room).collect();
    format!("{begin}{fit}_{hash}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_that_fit_stay_and_others_are_made_to_fit() {
        assert_eq!(of_tool("github", "create_issue"), "mcp__github__create_issue");
        assert_eq!(of_tool("files", "read/file"), "mcp__files__read_file_9cc468c6");
        assert_ne!(of_tool("files", "read/file"), of_tool("files", "read.file"));
        assert_ne!(of_tool("a", &"x".repeat(70)), of_tool("a", &"x".repeat(71)));
        for name in ["", "a b", "a__b", "_a", "a_", "ä", &"x".repeat(33)] {
            assert!(!is_server(name), "{name}");
        }
    }

    proptest! {
        #[test]
        fn every_name_is_one_that_providers_take(
            servers in proptest::collection::vec("[a-zA-Z0-9_-]{1,32}", 2),
            tools in proptest::collection::vec(any::<String>(), 2),
        ) {
            prop_assume!(servers.iter().all(|name| is_server(name)));
            let names: Vec<String> = servers.iter().zip(&tools).map(|(server, tool)| of_tool(server, tool)).collect();
            for name in &names {
                prop_assert!(name.len() <= MAX && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'));
            }
            prop_assert_eq!(names[0] == names[1], servers[0] == servers[1] && tools[0] == tools[1]);
        }
    }
}
