//! What a person is shown of a use of a tool, and what is then done: the bytes that were shown, and nothing that looks like them.

use callboard::actors::approvals::Card;
use callboard::messages::{Envelope, visible_lines};
use callboard_agents::testing::ScriptedModel;

use super::*;

const CLERK: &str = "[agent]\nname = \"clerk\"\n[agent.capabilities]\nallowed_tools = [\"writes\"]";

/// Arguments as a model writes them, and what a person has to see of them.
fn cases() -> Vec<(String, String)> {
    let mut cases = Vec::new();
    // In the target, and in an argument that is none.
    let deceiving = [
        // Turned around, or not to be seen.
        ("safe\u{202e}txt.exe", "safe\\u{202e}txt.exe"),
        ("a\u{202d}b", "a\\u{202d}b"),
        ("a\u{2066}b\u{2069}", "a\\u{2066}b\\u{2069}"),
        ("a\u{200e}b\u{200f}", "a\\u{200e}b\\u{200f}"),
        ("a\u{61c}b", "a\\u{61c}b"),
        ("rm\u{200b} -rf", "rm\\u{200b} -rf"),
        ("rm\u{200d}x", "rm\\u{200d}x"),
        ("x\u{2060}y", "x\\u{2060}y"),
        ("\u{feff}x", "\\u{feff}x"),
        ("a\u{ad}b", "a\\u{ad}b"),
        ("a\u{3164}b", "a\\u{3164}b"),
        ("a\u{2800}b", "a\\u{2800}b"),
        ("a\u{e0062}b", "a\\u{e0062}b"),
        ("a\u{180e}b", "a\\u{180e}b"),
        ("a\u{2028}b", "a\\u{2028}b"),
        ("a\u{2029}b", "a\\u{2029}b"),
        ("a\u{85}b", "a\\u{85}b"),
        ("a\u{9b}2Jb", "a\\u{9b}2Jb"),
        ("a\u{fff9}b", "a\\u{fff9}b"),
        ("a\u{1d173}b", "a\\u{1d173}b"),
        ("a\u{fe0f}b", "a\\u{fe0f}b"),
        ("a\u{fe00}b", "a\\u{fe00}b"),
        ("\u{3042}\u{fe0e}b", "\u{3042}\\u{fe0e}b"),
        ("\u{2764}\u{fe0f}\u{fe0f}b", "\u{2764}\u{fe0f}\\u{fe0f}b"),
        ("a\u{13437}b", "a\\u{13437}b"),
        ("a\u{16fe4}b", "a\\u{16fe4}b"),
        ("a\u{1d159}b", "a\\u{1d159}b"),
        // What is there is what is shown, in the same form.
        ("cafe\u{301}", "cafe\u{301}"),
        ("caf\u{e9}", "caf\u{e9}"),
        ("\u{212b}", "\u{212b}"),
        ("\u{2764}\u{fe0f}", "\u{2764}\u{fe0f}"),
        ("p\u{430}ypal", "p\u{430}ypal"),
        ("\u{ff52}\u{ff4d}", "\u{ff52}\u{ff4d}"),
        ("%2e%2e%2fetc", "%2e%2e%2fetc"),
        ("a/../../etc/passwd", "a/../../etc/passwd"),
        ("./././x//y", "./././x//y"),
        ("~/x $HOME `id` $(id)", "~/x $HOME `id` $(id)"),
        ("── approval 00 ── target    safe.txt", "── approval 00 ── target    safe.txt"),
        ("safe.txt │ agent     ann", "safe.txt │ agent     ann"),
    ];
    for (written, shown) in deceiving {
        cases.push((json!({ "path": written }).to_string(), format!("target    {shown}\n")));
        cases.push((json!({ "path": "x", "content": written }).to_string(), format!("\"content\": \"{shown}\"")));
    }
    // Line breaks and orders for a terminal: one line in the target; in the arguments lines of their own, and JSON's escapes.
    for (written, target, argument) in [
        ("a\nb", "a\\u{a}b", "  │     │ a\n  │     │ b\n"),
        ("a\r\nb", "a\\u{d}\\u{a}b", "  │     │ a\\u{d}\n  │     │ b\n"),
        ("safe\rrm", "safe\\u{d}rm", r"safe\rrm"),
        ("a\u{8}\u{8}b", "a\\u{8}\\u{8}b", r"a\b\bb"),
        ("a\tb", "a\\u{9}b", r"a\tb"),
        ("a\0b", "a\\u{0}b", r"a\u0000b"),
        ("\u{1b}[2Jx", "\\u{1b}[2Jx", r"\u001b[2Jx"),
        ("\u{1b}]8;;http://x\u{7}y", "\\u{1b}]8;;http://x\\u{7}y", r"\u001b]8;;http://x\u0007y"),
        (
            "x\nagent     ann\ntarget    safe",
            "x\\u{a}agent     ann\\u{a}target    safe",
            "  │     │ agent     ann\n  │     │ target    safe\n",
        ),
        ("x\n  … 0 more characters", "x\\u{a}  … 0 more characters", "  │     │   … 0 more characters\n"),
        ("a\u{c}b", "a\\u{c}b", r"a\fb"),
        ("a\u{7f}b", "a\\u{7f}b", "a\\u{7f}b"),
    ] {
        cases.push((json!({ "path": written }).to_string(), format!("target    {target}\n")));
        cases.push((json!({ "path": "x", "content": written }).to_string(), argument.to_owned()));
    }
    cases.extend(other_targets());
    cases
}

/// A target that is not what it seems to be at first.
fn other_targets() -> Vec<(String, String)> {
    let target = |text: &str| format!("target    {text}\n");
    let padding = " ".repeat(9_000);
    let wide = "\u{3000}".repeat(9_000);
    let lines = "\\n".repeat(9_000);
    let of: Vec<(String, String)> = vec![
        // Twice: what is used is the last, and what is shown.
        (r#"{"path":"safe","path":"evil"}"#.into(), target("evil")),
        (r#"{"path":"safe","p\u0061th":"evil"}"#.into(), target("evil")),
        (r#"{"path":"evil","Path":"safe","PATH":"safe"}"#.into(), target("evil")),
        (r#"{"path ":"safe","path":"evil"}"#.into(), target("evil")),
        (r#"{"target":"safe","path":"evil"}"#.into(), target("evil")),
        (r#"{"path":"evil","options":{"path":"safe"}}"#.into(), target("evil")),
        (r#"{"path":"safe","options":{"path":"evil"}}"#.into(), r#""path": "evil""#.into()),
        (r#"{"path\u200b":"safe"}"#.into(), r#""path\u{200b}": "safe""#.into()),
        (r#"{"p\u0430th":"safe"}"#.into(), target("")),
        // What is no text.
        (r#"{"path":["safe","evil"]}"#.into(), target(r#"["safe","evil"]"#)),
        (r#"{"path":{"a":"evil"}}"#.into(), target(r#"{"a":"evil"}"#)),
        (r#"{"path":null,"content":"evil"}"#.into(), target("null")),
        (r#"{"content":"evil"}"#.into(), r#""content": "evil""#.into()),
        (r#"{"path":1e2}"#.into(), target("100.0")),
        (r#"{"path":"\ud83d\ude00"}"#.into(), target("\u{1f600}")),
        // The truth is pushed away.
        (format!(r#"{{"content":"{padding}","path":"evil"}}"#), target("evil")),
        (format!(r#"{{"content":"{wide}","path":"evil"}}"#), target("evil")),
        (format!(r#"{{"content":"{lines}","path":"evil"}}"#), target("evil")),
        (format!(r#"{{"path":"safe{padding}/../evil"}}"#), "/../evil\n".into()),
        (
            format!(r#"{{"path":"x","content":"{padding}evil"}}"#),
            "more characters; the hash above covers all of them".into(),
        ),
        (
            format!(r#"{{"a":"{padding}","b":{{"path":"evil"}}}}"#),
            "more characters; the hash above covers all of them".into(),
        ),
    ];
    of
}

/// What holds for each card, whatever is on it.
fn assert_honest(envelope: &Envelope, written: &str) {
    let card = Card::of(envelope).brief();
    assert_eq!(visible_lines(&card), card, "{written}");
    assert!(!card.contains('\t') && !card.contains('\r'), "{written}");
    assert!(
        card.starts_with(&format!("── approval {} ──\nagent     clerk\naction    writes\ntarget    ", envelope.id()))
    );
    // Words that look like others are named below the code, and below them why people are asked.
    let looks = card.lines().filter(|line| line.starts_with("looks     ")).count();
    let why: Vec<&str> = card.lines().skip(6 + looks).take(2).collect();
    assert!(why[0].starts_with("effect    ") && why[1].starts_with("rule      "), "{card}");
    let mut below = card.lines().skip(8 + looks);
    assert!(below.all(|line| line.starts_with("  │ ") || line.starts_with("  … ")), "{card}");
    for (position, word) in
        ["── approval ", "agent     ", "action    ", "target    ", "expires   ", "code      "].iter().enumerate()
    {
        let found: Vec<usize> =
            card.lines().enumerate().filter(|(_, line)| line.starts_with(word)).map(|(at, _)| at).collect();
        assert_eq!(found, [position], "{card}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_person_sees_what_is_done_and_what_is_done_is_what_they_saw() {
    let cases = cases();
    assert!(cases.len() >= CASES);
    for (written, shown) in cases {
        let arguments: Json = serde_json::from_str(&written).unwrap();
        let sink = Sink::default();
        let model = ScriptedModel::new().calls("writes", arguments.clone()).says("done");
        let board = common::builder().with(agent(CLERK, model, &tools(&sink, ""))).start().await.unwrap();
        let run = board.submit(task("x", "clerk")).await.unwrap();
        let envelope = question(&board, &run).await;
        assert_honest(&envelope, &written);
        let card = Card::of(&envelope).brief();
        assert!(card.contains(&shown), "{shown:?} is not on\n{card}");
        assert_eq!(sink.effects(), [], "{written}");
        board.people().approve(envelope.id(), "ann").await.unwrap();
        run.result().await.unwrap();
        let done = sink.effects();
        assert_eq!(done.len(), 1, "{written}");
        assert_eq!(done[0].1.canonical(), envelope.action.arguments.canonical(), "{written}");
        assert_eq!(done[0].1.canonical(), arguments.canonical(), "{written}");
        board.shutdown().await;
    }
}

/// One that was approved for a whole run, and then others that a person could take for it.
#[tokio::test(start_paused = true)]
async fn consent_for_a_run_is_for_one_use_of_a_tool_and_nothing_like_it() {
    let approved = json!({ "path": "report.txt", "content": "fine" });
    let mut variants: Vec<Value> = [
        "Report.txt",
        "report.TXT",
        " report.txt",
        "report.txt ",
        "./report.txt",
        "report.txt/",
        "a/../report.txt",
        "report.txt\0",
        "report.txt\n",
        "report.txt\u{200b}",
        "\u{feff}report.txt",
        "report\u{2024}txt",
        "rep\u{43e}rt.txt",
        "\u{ff52}eport.txt",
        "report.txt\u{202e}",
        "report%2etxt",
        "repo\u{ad}rt.txt",
        "re\u{301}port.txt",
        "\"report.txt\"",
        "report.tx",
        "report.txt2",
        "",
        "../report.txt",
        "/report.txt",
        "report..txt",
        "*.txt",
        "r?port.txt",
        "report.txt;x",
        "~/report.txt",
        "report.txt\\",
    ]
    .iter()
    .map(|path| json!({ "path": path, "content": "fine" }))
    .collect();
    variants.extend(
        ["", "Fine", "fine ", "fine\n", " fine", "f\u{131}ne", "fin\u{435}", "fine\u{200b}", "\"fine\"", "fin"]
            .iter()
            .map(|content| json!({ "path": "report.txt", "content": content })),
    );
    variants.extend([
        json!({ "path": "report.txt" }),
        json!({ "content": "fine" }),
        json!({}),
        json!({ "path": "fine", "content": "report.txt" }),
        json!({ "path": ["report.txt"], "content": "fine" }),
        json!({ "path": "report.txt", "content": null }),
        json!({ "path": "report.txt", "content": "fine", "mode": 0 }),
        json!({ "path": "report.txt", "content": "fine", "": "" }),
        json!({ "path": "report.txt", "content": "fine", "path2": "x" }),
        json!({ "path": "report.txt", "content": "fine", "Path": "x" }),
        json!({ "path": "report.txt", "content": { "fine": 1 } }),
        json!({ "path": { "report.txt": 1 }, "content": "fine" }),
    ]);
    assert!(variants.len() >= CASES, "{}", variants.len());
    let model = variants.iter().fold(ScriptedModel::new().calls("writes", approved.clone()), |model, variant| {
        model.calls("writes", variant.clone())
    });
    // As it was approved, with its arguments in another order.
    let model = model.calls("writes", json!({ "content": "fine", "path": "report.txt" })).says("done");
    let sink = Sink::default();
    let clerk = CLERK.to_owned() + "\nmax_iterations = 100";
    let board = common::builder().with(agent(&clerk, model, &tools(&sink, ""))).start().await.unwrap();
    let run = board.submit(task("x", "clerk")).await.unwrap();
    let hour = std::time::Duration::from_secs(3600);
    let first = question(&board, &run).await;
    board.people().answer(first.id(), Response::ApproveForRun(hour), "ann").await.unwrap();
    for variant in &variants {
        let envelope = question(&board, &run).await;
        assert_eq!(envelope.action.arguments, Json::from(variant.clone()));
        board.people().deny(envelope.id(), "ann", "no").await.unwrap();
    }
    assert_eq!(run.result().await.unwrap().output, "done");
    let done: Vec<Vec<u8>> = sink.effects().iter().map(|(_, arguments)| arguments.canonical()).collect();
    let approved = Json::from(approved).canonical();
    assert_eq!(done, [approved.clone(), approved]);
    board.shutdown().await;
}
