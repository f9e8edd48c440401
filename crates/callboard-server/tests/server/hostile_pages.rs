//! Hostile texts of agents, models, tools and clients on every page, in a browser: they are text, and run nothing.

use callboard::prelude::*;
use callboard::workflow::{Node, Workflow};
use callboard_server::{AgentFile, AgentFiles, Scope, TokenSpec};
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::in_browser::{Served, overview_of, sign_in};
use crate::skipping::skip;

/// Whatever the policy keeps from being loaded or run is counted, before a page has a script.
pub(crate) const COUNTED: &str = "globalThis.violations = []; addEventListener('securitypolicyviolation', (event) => violations.push(event.blockedURI + ' ' + event.violatedDirective), true);";

/// What HTML, SVG, CSS, URLs and scripts could be made of.
pub(crate) fn payloads() -> Vec<String> {
    const SCRIPT: &str = "globalThis.attacked=1";
    let mut all = Vec::new();
    for tag in [
        "img", "svg", "body", "iframe", "video", "audio", "details", "input", "select", "marquee", "object", "embed",
        "math", "style", "link", "meta", "base", "form", "a", "button",
    ] {
        for event in ["onerror", "onload", "onfocus", "ontoggle", "onmouseover", "onanimationstart"] {
            all.push(format!("<{tag} src=x href=x open autofocus {event}={SCRIPT}>"));
        }
        all.push(format!("\"><{tag} onload='{SCRIPT}'>"));
        all.push(format!("</pre></li></ol><{tag}><script>{SCRIPT}</script>"));
        all.push(format!(
            "<{tag} href=javascript:{SCRIPT} src=javascript:{SCRIPT} action=javascript:{SCRIPT}>x</{tag}>"
        ));
    }
    for close in [
        "</script>",
        "</style>",
        "</title>",
        "</textarea>",
        "</template>",
        "</noscript>",
        "-->",
        "]]>",
        "'",
        "\"",
        "`",
        "\\",
        "&quot;",
        "&#34;",
        "&lt;",
        "\u{0}",
        "\r\n\r\n",
    ] {
        for begin in [
            "<script>",
            "<svg><script>",
            "<math><mi//xlink:href=\"data:x,",
            "<!--",
            "<![CDATA[",
            "<?xml-stylesheet href=",
            "{{",
            "${",
            "<%",
        ] {
            all.push(format!("{close}{begin}{SCRIPT}</script>"));
        }
    }
    for scheme in ["javascript", "data", "vbscript", "file", "blob", "JaVaScRiPt", "java\tscript", "\u{1}javascript"] {
        all.push(format!("{scheme}:{SCRIPT}//"));
        all.push(format!("<a href=\"{scheme}:{SCRIPT}\">open</a>"));
    }
    for text in [
        "\u{202e}tpircs\u{202c}",
        "\u{2066}approve\u{2069}",
        "a\u{200b}b\u{200d}c\u{feff}",
        "\u{1b}[31mred\u{1b}[0m\u{1b}]8;;http://evil.example\u{7}x",
        "\u{85}\u{2028}\u{2029}",
        "e\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}",
        "<style>*{background:url(http://evil.example/)}</style>",
        "<img src=http://evil.example/x>",
        "<link rel=stylesheet href=http://evil.example/x>",
        "<meta http-equiv=refresh content='0;url=http://evil.example/'>",
        "<form action=http://evil.example><button>Approve</button></form>",
        "<svg><foreignObject><iframe srcdoc='<script>parent.attacked=1</script>'>",
        "\u{fdd0}\u{fffe}\u{e000}",
    ] {
        all.push(text.to_owned());
    }
    all
}

#[test]
fn hostile_texts_of_agents_are_text_and_run_nothing() {
    let Some(mut browser) = Browser::start() else { return skip("there is no Chromium") };
    let served = Served::start();
    let payloads = payloads();
    assert!(payloads.len() >= 300, "there are {}", payloads.len());
    browser.asks("Page.addScriptToEvaluateOnNewDocument", json!({ "source": COUNTED }));
    sign_in(&mut browser, &served.link());
    let elements = "[...new Set([...document.querySelectorAll('main *')].map((element) => element.localName))].sort()";
    for (number, some) in payloads.chunks(20).enumerate() {
        for (at, text) in some.iter().enumerate() {
            served.submit(if at % 2 == 0 { "asker" } else { "coder" }, text);
        }
        // Appended by the script, and written by the server.
        browser
            .sees(&format!("document.querySelectorAll('.item:not(.done, .denied, .gone)').length === {}", some.len()));
        for _ in 0..2 {
            let found = browser.value(elements);
            for element in found.as_array().unwrap() {
                let own = [
                    "a", "b", "bdi", "button", "code", "dd", "div", "dl", "dt", "form", "h1", "h2", "input", "label",
                    "li", "nav", "ol", "p", "pre", "section", "span", "template", "textarea", "time",
                ];
                assert!(own.contains(&element.as_str().unwrap()), "{element} in chunk {number}");
            }
            let attributes = browser.value(
                "[...document.querySelectorAll('main *')].flatMap((element) => [...element.attributes]).filter(({ name, value }) => (name.startsWith('on') || ['src', 'href', 'style', 'action'].includes(name)) && !/^\\/(\\?kind=[a-z_]+|runs\\/[0-9a-f-]+)?$/.test(value)).length",
            );
            assert_eq!(attributes, json!(0), "in chunk {number}");
            let unseen = browser.value("/[\\u200b-\\u200f\\u202a-\\u202e\\u2066-\\u2069\\ufeff\\u001b]/.test(document.querySelector('main').textContent)");
            assert_eq!(unseen, json!(false), "in chunk {number}");
            assert_eq!(
                browser.value("[globalThis.attacked ?? null, violations]"),
                json!([null, []]),
                "in chunk {number}"
            );
            browser.opens(&overview_of(&served));
            browser.sees("document.querySelector('#state')?.textContent === 'Live'");
        }
        for wait in served.runtime.block_on(served.board.people().pending()) {
            served.runtime.block_on(served.board.run(wait.run()).cancel("done")).unwrap();
        }
        browser.sees("document.querySelectorAll('.item:not(.done, .denied, .gone)').length === 0");
        browser.opens(&overview_of(&served));
        browser.sees("document.querySelector('#state')?.textContent === 'Live'");
    }
    assert_eq!(browser.complaints(), [&Value::Null; 0]);
    served.end();
}

/// An agent whose steps, lines, values and output are the texts of its input.
pub(crate) async fn acts(turn: Turn) -> Result<Command, TurnError> {
    let texts: Vec<String> = turn.input()?;
    let mut command = Command::output(texts.clone());
    for text in &texts {
        let value = json!({ "text": text, "calls": [{ "name": text, "arguments": { text: text } }] });
        turn.step(text, async { Ok::<_, TurnError>(value) }).await?;
        turn.summary(text);
        command = command.with(text, json!({ text: text }));
    }
    Ok(command)
}

/// Opens a page and asserts that what it shows is text; whether it shows any of the texts, and the address of the page after it.
fn looks(browser: &mut Browser, address: &str) -> (bool, Option<String>) {
    browser.opens(address);
    browser.sees("document.readyState === 'complete'");
    let wrong = browser.value(
        "(() => {
           const own = /^(\\/[^\\/\\\\]|\\/$|[#?]|http:\\/\\/cb-)/;
           const wrong = [];
           for (const element of document.querySelectorAll('main *')) {
             if (/^(script|style|iframe|frame|object|embed|link|meta|base|video|audio|math|marquee|noscript|foreignobject|applet|portal)$/i.test(element.localName)) wrong.push(element.localName);
             for (const { name, value } of element.attributes) {
               if (name.startsWith('on') || name === 'style' || name === 'srcdoc') wrong.push(name);
               if (['src', 'href', 'xlink:href', 'action', 'formaction'].includes(name) && !own.test(value)) wrong.push(`${name}=${value}`);
             }
           }
           const main = document.querySelector('main');
           if (/[\\u200b-\\u200f\\u202a-\\u202e\\u2066-\\u2069\\ufeff\\u001b]/.test(main.textContent)) wrong.push('unseen');
           if (globalThis.attacked) wrong.push('attacked');
           const pages = [...main.querySelectorAll('a')].filter((it) => ['Older runs', 'Older requests', 'The next ones'].includes(it.textContent));
           return [wrong.concat(violations), main.textContent.includes('attacked'), pages[0]?.href ?? null, location.href];
         })()",
    );
    let shown = format!("{address}: {wrong}");
    assert_eq!(wrong[0], json!([]), "{shown}");
    (wrong[1] == true, wrong[2].as_str().map(str::to_owned))
}

/// The same with all pages of a list; on how many of them the texts are.
fn looks_through(browser: &mut Browser, address: &str) -> usize {
    let (mut next, mut pages) = (Some(address.to_owned()), 0);
    while let Some(address) = next.take() {
        let (is_shown, after) = looks(browser, &address);
        pages += usize::from(is_shown);
        next = after;
    }
    pages
}

/// Sends a request to the server, as a client on this machine does.
fn asks(served: &Served, method: &str, path: &str, body: &Value) -> u16 {
    served.runtime.block_on(served.client.request(method, path, Some(body))).unwrap().0
}

#[test]
fn hostile_texts_are_text_on_every_page() {
    let Some(mut browser) = Browser::start() else { return skip("there is no Chromium") };
    let (served, payloads) = (Served::start(), payloads());
    browser.asks("Page.addScriptToEvaluateOnNewDocument", json!({ "source": COUNTED }));
    let origin = overview_of(&served);
    let (board, runtime) = (&served.board, &served.runtime);
    let writer = AgentName::new("acts").unwrap();
    let mut failed = Vec::new();
    for (place, text) in payloads.iter().enumerate() {
        failed.push(runtime.block_on(board.submit(Task::new(text).to("broken"))).unwrap());
        let prefix = if place % 2 == 0 { "a" } else { "b" };
        let context = board.context();
        let set = |key: String| runtime.block_on(context.set("notes", &key, text.as_str(), &writer, None));
        set(format!("{prefix}/{text}")).or_else(|_| set(format!("{prefix}/{place}"))).unwrap();
    }
    failed.iter().for_each(|run| drop(runtime.block_on(run.result())));
    for some in payloads.chunks(100) {
        let drop = |text: &String| json!({ "id": format!("conflict:{text}"), "response": "drop", "reason": text });
        let decisions: Vec<Value> = some.iter().map(drop).collect();
        assert_eq!(asks(&served, "POST", "/v1/inbox/decisions", &json!({ "decisions": decisions })), 200);
    }
    sign_in(&mut browser, &served.link());
    let page = |path: &str| format!("{origin}{path}");
    assert_eq!(looks_through(&mut browser, &page("runs")), payloads.len().div_ceil(50));
    assert_eq!(looks_through(&mut browser, &origin), payloads.len().div_ceil(20));
    // Requests of one moment are on one page.
    assert!(looks_through(&mut browser, &page("audit?only=decisions")) > 0);
    for path in ["context?namespace=notes&prefix=a", "context?namespace=notes&prefix=b"] {
        assert!(looks(&mut browser, &page(path)).0, "{path}");
    }
    for (number, some) in payloads.chunks(20).enumerate() {
        let (all, one) = (some.join(" "), |place: usize| &some[place % some.len()]);
        // What files say of agents.
        let facts = vec![("Tools", all.clone()), ("Models", one(0).clone())];
        let file = AgentFile { path: one(1).clone(), facts, team: some.to_vec() };
        served.files.send_replace(AgentFiles {
            descriptions: [("acts".to_owned(), all.clone()), ("broken".to_owned(), one(2).clone())].into(),
            refused: some.iter().map(|text| (text.clone(), format!("{text}:3:1: {text}"))).collect(),
            files: [("acts".to_owned(), file)].into(),
            ..AgentFiles::default()
        });
        for path in ["agents", "agents/acts", "files", "?kind=refused_file"] {
            assert!(looks(&mut browser, &page(path)).0, "{path} of {number}");
        }
        // Names of schedules, tokens, workflows and their nodes; what is refused as a name is a text beside one.
        for (at, text) in some.iter().enumerate() {
            let task = json!({ "body": text, "to": "acts" });
            let schedule = |name: &str| json!({ "name": name, "webhook": "github", "task": task });
            let added = asks(&served, "POST", "/v1/schedules", &schedule(text));
            assert!([201, 400, 422].contains(&added), "{added} for {text:?}");
            let token = || TokenSpec::new(&format!("t{number}-{at}"), [Scope::Read]);
            served.tokens.add(token().owner(text)).or_else(|_| served.tokens.add(token())).unwrap();
        }
        let node = |id: &str| Node::agent(id, "acts").input(json!({ one(3): "{{ topic }}" }));
        let build = |name: &str, id: &str| Workflow::builder(name).description(&all).node(node(id)).build();
        let workflow = build(one(4), one(5)).or_else(|_| build(&format!("w{number}"), "node")).unwrap();
        runtime.block_on(board.workflows().save(&workflow)).unwrap();
        let name = form_urlencoded::byte_serialize(workflow.name().as_bytes()).collect::<String>().replace('+', "%20");
        assert!(looks(&mut browser, &page(&format!("workflows/{name}"))).0, "workflow of {number}");
        // A run whose steps, lines, state and output they are.
        let input = json!(some);
        let run = runtime.block_on(board.submit(Task::new(&all).to("acts").input(input))).unwrap();
        runtime.block_on(run.result()).unwrap();
        let events = runtime.block_on(run.history()).unwrap().len();
        let of_run = page(&format!("runs/{}", run.id()));
        for path in
            ["", "?all=1", "/turns/1", "/journal?event=5", "/journal?event=6", &format!("/journal?event={events}")]
        {
            let (is_shown, _) = looks(&mut browser, &format!("{of_run}{path}"));
            assert!(is_shown, "{path} of run {number}");
        }
        let planned = Task { body: all.as_str().into(), ..workflow.task(json!({ "topic": all })) };
        let planned = runtime.block_on(board.submit(planned)).unwrap();
        runtime.block_on(planned.result()).unwrap();
        for path in ["", "/nodes"] {
            looks(&mut browser, &page(&format!("runs/{}{path}", planned.id())));
        }
    }
    for path in ["schedules", "workflows"] {
        assert!(looks(&mut browser, &page(path)).0, "{path}");
    }
    for path in ["tokens", "usage", "handoffs"] {
        looks(&mut browser, &page(path));
    }
    assert_eq!(browser.complaints(), [&Value::Null; 0]);
    served.end();
}
