//! MCP servers that write without an end: what that costs the process that reads it.

#![cfg(all(unix, feature = "mcp"))]

use serde_json::json;

use crate::alone::is_alone;
use crate::peers::{failure, offered, program, reported, servers, tools, use_one, with_another};

/// The most memory that the process has had, in KiB.
#[cfg(target_os = "linux")]
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test]
async fn a_line_without_an_end_costs_no_more_than_its_bound() {
    if !is_alone("endless_servers::a_line_without_an_end_costs_no_more_than_its_bound") {
        return;
    }
    let endless = r#"
def bad(request):
    part = "x" * (1 << 20)
    for _ in range(200):
        sys.stdout.write(part)
serve(bad)
"#;
    let tools = tools(&with_another(endless)).await;
    let reported = failure(&tools, "mcp__bad__bad", json!({})).await;
    assert_eq!(reported, "the MCP server \"bad\" wrote a line of more than 8 MiB before the tool had answered");
    assert_eq!(use_one(&tools, "mcp__good__add", json!({ "a": 1, "b": 1 })).await.text, "2");
    #[cfg(target_os = "linux")]
    assert!(peak() < 200 << 10, "{} KiB", peak());
}

#[tokio::test]
async fn a_million_tools_are_too_many_on_one_page_and_on_many() {
    if !is_alone("endless_servers::a_million_tools_are_too_many_on_one_page_and_on_many") {
        return;
    }
    let one_page = "TOOLS = [tool(\"t%d\" % n) for n in range(1000000)]\nserve()";
    let many_pages = r#"
def result(request, call, plain=result):
    if request["method"] != "tools/list":
        return plain(request, call)
    page = int((request.get("params") or {}).get("cursor", 0))
    return {"tools": [tool("t%d" % page)], "nextCursor": str(page + 1)}
serve()
"#;
    let empty_pages = many_pages.replace("[tool(\"t%d\" % page)]", "[]");
    let document = [("page", one_page), ("pages", many_pages), ("empty", &empty_pages), ("good", "serve()")];
    let document: String = document.into_iter().map(|(name, source)| program(name, source)).collect();
    let (tools, problems) = offered(&servers(&document)).await;
    let reported: Vec<String> = problems.iter().map(reported).collect();
    assert_eq!(
        reported,
        [
            "the MCP server \"page\" wrote a line of more than 8 MiB before its tools could be listed",
            "the MCP server \"pages\" lists more than 256 tools; name those that agents may use in `tools`",
            "the MCP server \"empty\" lists its tools in more than 300 pages",
        ]
    );
    assert_eq!(use_one(&tools, "mcp__good__add", json!({ "a": 1, "b": 1 })).await.text, "2");
    #[cfg(target_os = "linux")]
    assert!(peak() < 400 << 10, "{} KiB", peak());
}
