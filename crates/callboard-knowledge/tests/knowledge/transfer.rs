//! Exports and imports of a base.

use std::io::Cursor;

use callboard::env::Env;
use callboard::messages::Timestamp;
use callboard_knowledge::entities::{EntityKind, Named, Relation};
use callboard_knowledge::facts::OnContradiction;
use callboard_knowledge::search::ReadFacts;
use callboard_knowledge::store::{ChangeKind, ChangeRequest, Counts, Submission};
use callboard_knowledge::{KnowledgeBase, KnowledgeError};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::support::{Base, document, single, submission};

/// A base with a past: passages that ended, a dispute that was decided, and a fact that another one supersedes.
pub(crate) async fn filled() -> Base {
    let base = Base::new();
    let mut linked = document("a.md", &[("One", "the first token"), ("Two", "second")]);
    linked.passages[0].links.push("b.md".to_owned());
    linked.passages[1].named.push(Named {
        name: "Keys".to_owned(),
        kind: EntityKind::Thing,
        relation: Relation::Defines,
    });
    base.base.write_documents("default", vec![linked, document("b.md", &[("B", "other")])]).await.unwrap();
    base.clock.set(2_000);
    base.base.submit(single("gate", "opens at", "nine")).await.unwrap();
    let ten = base.base.submit(single("gate", "opens at", "ten")).await.unwrap().fact.id;
    base.submit("Keys rotate each month.").await;
    base.submit("keys rotate each MONTH").await;
    base.base.submit(single("door", "opens at", "one")).await.unwrap();
    let supersede = OnContradiction::Supersede;
    let two = Submission { on_contradiction: supersede, ..single("door", "opens at", "two") };
    base.base.submit(two).await.unwrap();
    base.clock.set(3_000);
    let (kind, reason, by) = (ChangeKind::Accept, "it was moved".to_owned(), "ann".to_owned());
    let request = ChangeRequest { kind, fact: ten, reason, by, run: None };
    let hash = base.base.preview(&request).await.unwrap().hash;
    base.base.apply(request, &hash, None).await.unwrap();
    base.write("a.md", &[("Two", "second")]).await;
    base.base.end_document("default", "b.md").await.unwrap();
    base
}

async fn exported(base: &Base) -> String {
    let (bytes, _) = base.base.export(Vec::new()).await.unwrap();
    String::from_utf8(bytes).unwrap()
}

async fn refused(base: &Base, text: &str) -> String {
    let error = base.base.import(Cursor::new(text.to_owned())).await.unwrap_err();
    assert_eq!(base.base.counts().await.unwrap(), Counts::default(), "{error}");
    error.to_string()
}

/// The lines with a last one that has their hash.
fn signed(lines: &[String]) -> String {
    let (end, before) = lines.split_last().unwrap();
    let before: String = before.iter().map(|line| format!("{line}\n")).collect();
    let hash: String = Sha256::digest(&before).iter().map(|byte| format!("{byte:02x}")).collect();
    let at = end.find("\"sha256\":\"").unwrap() + "\"sha256\":\"".len();
    format!("{before}{}{hash}{}\n", &end[..at], &end[at + 64..])
}

#[tokio::test]
async fn an_export_of_an_import_has_the_same_bytes_and_answers_the_same() {
    let base = filled().await;
    let text = exported(&base).await;
    let other = Base::new();
    let moved = other.base.import(Cursor::new(text.clone())).await.unwrap();
    assert_eq!((moved.documents, moved.passages, moved.facts, moved.predicates), (2, 3, 5, 1));
    assert_eq!(exported(&other).await, text);
    assert_eq!(other.base.check().await.unwrap(), []);
    assert_eq!(other.base.counts().await.unwrap(), base.base.counts().await.unwrap());
    for (question, as_of) in [("token", Some(2_500)), ("gate opens", Some(2_500)), ("gate opens", None), ("keys", None)]
    {
        let as_of = as_of.map(Timestamp::from_millis);
        let ask = || ReadFacts { as_of, ..ReadFacts::new("default", question) };
        let [one, two] = [&base, &other].map(|base| base.base.read_facts(ask()));
        let (one, two) = (one.await.unwrap(), two.await.unwrap());
        assert!(!one.results.is_empty(), "{question}");
        assert_eq!(one, two, "{question}");
    }
}

#[tokio::test]
async fn an_import_goes_into_an_empty_base_alone() {
    let base = filled().await;
    let text = exported(&base).await;
    let error = base.base.import(Cursor::new(text.clone())).await.unwrap_err();
    assert!(matches!(error, KnowledgeError::NotEmpty), "{error}");
    assert_eq!(exported(&base).await, text);
}

#[tokio::test]
async fn an_export_that_was_cut_anywhere_is_refused_whole() {
    let (text, empty) = (exported(&filled().await).await, Base::new());
    let ends = text.match_indices('\n').map(|(end, _)| end);
    for cut in ends.flat_map(|end| [end.saturating_sub(1), end]) {
        let error = refused(&empty, &text[..cut]).await;
        assert!(error.contains("truncated"), "{cut}: {error}");
    }
    let lines = text.lines().count();
    let error = refused(&empty, &format!("{text}{{}}\n")).await;
    assert_eq!(error, format!("line {} of the export: nothing follows the last line; nothing was imported", lines + 1));
}

#[tokio::test]
async fn an_export_that_was_changed_is_refused_by_its_hash_or_its_line() {
    let (text, empty) = (exported(&filled().await).await, Base::new());
    let error = refused(&empty, &text.replacen("it was moved", "it was mined", 1)).await;
    assert!(error.contains("SHA-256"), "{error}");
    for (from, to, expected) in [
        ("\"callboard_knowledge\":1", "\"callboard_knowledge\":2", "line 1 of the export: the export has version 2"),
        ("\"is_untrusted\":false", "\"is_untrusted\":0", "it is no line of an export"),
        ("\"is_untrusted\":false", "\"is_untrusted\":false,\"x\":1", "unknown field `x`"),
        ("\"state\":\"current\"", "\"state\":\"perhaps\"", "unknown variant `perhaps`"),
        (
            "\"state\":\"invalid\",\"valid_from\"",
            "\"state\":\"current\",\"valid_from\"",
            "does not agree with when it ended",
        ),
        ("\"source_count\":1", "\"source_count\":2", "has 1 sources, and counts 2"),
        ("\"revision\":1", "\"revision\":7", "does not lead to its revision"),
        ("\"statement\":\"gate", "\"statement\":\"gates", "is not the id of its statement"),
        ("\"item\":1,", "\"item\":0,", "is not between 1 and"),
        ("\"names\":[[\"", "\"names\":[[\"no such ", "no line before it has the entity"),
        ("\"hash\":\"", "\"hash\":\"zz", "is not 64 hexadecimal digits"),
        ("\"facts\":5", "\"facts\":6", "its counts are not those"),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        let lines: Vec<String> = changed.lines().map(str::to_owned).collect();
        let error = refused(&empty, &signed(&lines)).await;
        assert!(error.contains(expected), "{from}: {error}");
    }
}

/// Changes the first line of a kind for which `change` returns true; returns the text, and the number of the line.
fn edited(text: &str, kind: &str, change: impl Fn(&mut Value) -> bool) -> (String, usize) {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let changed = lines.iter_mut().position(|line| {
        let mut value: Value = serde_json::from_str(line).unwrap();
        let is_changed = value.get_mut(kind).is_some_and(&change);
        *line = value.to_string();
        is_changed
    });
    (signed(&lines), changed.unwrap() + 1)
}

#[tokio::test]
async fn rows_that_break_a_rule_of_bases_are_refused_with_their_line_and_what_to_do() {
    let (text, empty) = (exported(&filled().await).await, Base::new());
    let at = |seconds: u64| Value::from(format!("1970-01-01T00:00:0{seconds}.000Z"));
    let has_two = |fact: &Value| fact["history"].as_array().unwrap().len() == 2;
    let is_ended = |row: &Value| !row["ended_at"].is_null();
    let set = |place: &mut Value, value: Value| {
        *place = value;
        true
    };
    let burned = |fact: &mut Value| set(&mut fact["history"][0]["change"], "burned ".repeat(100_000).into());
    let goes_back = |fact: &mut Value| has_two(fact) && set(&mut fact["history"][1]["at"], at(1));
    let ends_early = |fact: &mut Value| is_ended(fact) && set(&mut fact["valid_from"], at(9));
    let ends_first = |passage: &mut Value| is_ended(passage) && set(&mut passage["ended_at"], at(0));
    let holds_too = |fact: &mut Value| {
        let is_one = fact["triple"]["value"] == "one";
        if is_one {
            (fact["state"], fact["ended_at"], fact["history"][1]["state"]) =
                ("current".into(), Value::Null, "current".into());
        }
        is_one
    };
    let of_base = "; correct it in the base that was exported, and export that again; nothing was imported";
    let several = "current facts of a predicate with one value at a time that have several (`callboard kb invalidate` all but one): 1";
    let by_many = |fact: &mut Value| set(&mut fact["sources"][0]["by"], "x".repeat(1025).into());
    let in_long_run = |fact: &mut Value| set(&mut fact["history"][0]["run"], "x".repeat(1025).into());
    let too_long = "sources, changes and contradictions with a text that is too long: 1, such as fact-";
    type Edit<'a> = &'a dyn Fn(&mut Value) -> bool;
    let cases: [(&str, Edit<'_>, &str, &str); 7] = [
        ("fact", &by_many, too_long, of_base),
        ("fact", &in_long_run, too_long, of_base),
        ("fact", &burned, "is no change of a fact: these are submitted,", "nothing was imported"),
        ("fact", &goes_back, "facts whose history goes back in time: 1, such as fact-", of_base),
        (
            "fact",
            &ends_early,
            "facts whose state holds since a time at which they did not have it: 1, such as fact-",
            of_base,
        ),
        ("passage", &ends_first, "rows that ended before they began: 1, such as ", of_base),
        ("fact", &holds_too, several, of_base),
    ];
    for (kind, change, why, end) in cases {
        let (text, line) = edited(&text, kind, change);
        let error = refused(&empty, &text).await;
        assert!(error.len() < 1_000 && error.contains(why) && error.ends_with(end), "{why}: {error}");
        // Of two facts, either can be changed.
        let line = if why == several { "line ".to_owned() } else { format!("line {line} of the export: ") };
        assert!(error.starts_with(&line), "{line}: {error}");
    }
}

#[tokio::test]
async fn control_characters_of_an_export_are_visible_in_its_error() {
    let hostile = "\u{1b}]0;name\u{7}\u{202e}\u{2028}";
    let name = serde_json::to_string(hostile).unwrap();
    for line in [
        format!("{{{name}:1}}"),
        format!("{{\"entity\":{{\"namespace\":\"default\",\"name\":\"x\",\"kind\":{name}}}}}"),
        format!("{{\"entity\":{{{name}:1}}}}"),
        format!("{{\"entity\":{name}}}"),
    ] {
        let error = refused(&Base::new(), &format!("{{\"callboard_knowledge\":1}}\n{line}\n")).await;
        assert_eq!(callboard_text::visible(&error), error);
    }
}

#[tokio::test]
async fn lines_out_of_order_and_lines_twice_are_refused_though_the_hash_is_right() {
    let (text, empty) = (exported(&filled().await).await, Base::new());
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let first_of = |kind: &str| lines.iter().position(|line| line.starts_with(kind)).unwrap();
    for kind in ["{\"entity\"", "{\"document\"", "{\"passage\"", "{\"fact\"", "{\"contradiction\"", "{\"predicate\""] {
        let mut twice = lines.clone();
        twice.insert(first_of(kind), lines[first_of(kind)].clone());
        let error = refused(&empty, &signed(&twice)).await;
        assert!(error.starts_with(&format!("line {} of", first_of(kind) + 2)), "{kind}: {error}");
    }
    let mut moved = lines.clone();
    let predicate = moved.remove(first_of("{\"predicate\""));
    moved.insert(first_of("{\"contradiction\""), predicate);
    let error = refused(&empty, &signed(&moved)).await;
    assert!(error.contains("out of order"), "{error}");
    let orphan = [lines[0].clone(), lines[first_of("{\"passage\"")].clone(), lines[lines.len() - 1].clone()];
    let error = refused(&empty, &signed(&orphan)).await;
    assert!(error.contains("line 2 of the export: no document is before it"), "{error}");
}

#[tokio::test]
async fn facts_that_supersede_each_other_in_a_circle_are_refused() {
    let base = Base::new();
    let one = base.submit("The first holds.").await.fact.id;
    let two = base.base.submit(submission("The second holds.")).await.unwrap().fact.id;
    let mut lines: Vec<String> = exported(&base).await.lines().map(str::to_owned).collect();
    let entity = |id| format!("{{\"entity\":{{\"namespace\":\"default\",\"name\":\"{id}\",\"kind\":\"fact\"}}}}");
    for (source, target) in [(one, two), (two, one)] {
        let is_source = |line: &&mut String| line.contains(&format!("\"id\":\"{source}\""));
        let [source, target] = [source, target].map(|id| callboard_knowledge::words::normalised(&id.to_string()));
        let edges = format!("\"edges\":[[\"{source}\",\"supersedes\",\"{target}\"]]");
        let line = lines.iter_mut().find(is_source).unwrap();
        *line = line.replace("\"edges\":[]", &edges);
    }
    lines.splice(1..1, [entity(one), entity(two)]);
    let end = lines.last_mut().unwrap();
    *end = end.replace("\"entities\":0", "\"entities\":2");
    let error = refused(&Base::new(), &signed(&lines)).await;
    assert!(error.contains("in a circle"), "{error}");
}

#[tokio::test]
async fn a_line_that_does_not_end_is_refused_at_its_bound() {
    let text = format!("{{\"callboard_knowledge\":1}}\n{}", "x".repeat((16 << 20) + 1));
    let error = refused(&Base::new(), &text).await;
    assert!(error.starts_with("line 2 of the export: it has more than 16777216 bytes"), "{error}");
}

/// Text that arrives once it is sent.
struct Slow {
    texts: std::sync::mpsc::Receiver<String>,
    has_begun: Option<tokio::sync::oneshot::Sender<()>>,
    rest: Cursor<String>,
}

impl std::io::Read for Slow {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if let Some(begun) = self.has_begun.take() {
            begun.send(()).unwrap();
        }
        match self.rest.read(into)? {
            0 => {
                // Nothing more is sent once the sender is gone.
                self.rest = Cursor::new(self.texts.recv().unwrap_or_default());
                self.rest.read(into)
            }
            read => Ok(read),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_write_while_an_import_reads_its_text_and_then_it_is_refused() {
    let text = exported(&filled().await).await;
    let base = Base::new();
    let ((send, texts), (has_begun, begun)) = (std::sync::mpsc::channel(), tokio::sync::oneshot::channel());
    let slow = Slow { texts, has_begun: Some(has_begun), rest: Cursor::default() };
    let import = tokio::spawn({
        let base = base.base.clone();
        async move { base.import(std::io::BufReader::new(slow)).await }
    });
    begun.await.unwrap();
    base.submit("The gate is open.").await;
    send.send(text).unwrap();
    drop(send);
    assert!(matches!(import.await.unwrap().unwrap_err(), KnowledgeError::NotEmpty));
    assert_eq!(base.base.counts().await.unwrap().current, 1);
}

#[tokio::test]
async fn a_base_is_removed_only_if_nothing_was_written_to_it_and_nothing_else_has_it_open() {
    let Base { base, folder, .. } = Base::new();
    let path = base.path().to_owned();
    let other = KnowledgeBase::open(&path, &Env::system()).unwrap();
    base.remove_if_empty().await.unwrap();
    assert!(path.exists(), "another one has it open");
    other.submit(submission("The gate is open.")).await.unwrap();
    other.remove_if_empty().await.unwrap();
    assert_eq!(KnowledgeBase::open(&path, &Env::system()).unwrap().counts().await.unwrap().current, 1);
    let empty = folder.path().join("empty.db");
    KnowledgeBase::create(&empty, &Env::system()).unwrap().remove_if_empty().await.unwrap();
    assert!(!empty.exists());
}
