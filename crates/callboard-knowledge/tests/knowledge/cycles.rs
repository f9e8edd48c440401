//! The cycles of an initialisation, with a model that is a function.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use callboard::prelude::*;
use callboard_knowledge::KnowledgeBase;
use callboard_knowledge::cycles::{
    CYCLE_AGENT, InitInputs, InitRequest, Initialised, PublishRequest, Summaries, documents_of, end_documents,
    init_agent, init_result, init_task, publish_agent, publish_result, publish_task,
};
use callboard_knowledge::indexing::index_folder;
use callboard_knowledge::search::ReadFacts;
use callboard_knowledge::store::Trust;
use futures::StreamExt as _;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::support::{Base, document};

/// The agent that the model is.
pub(crate) const MODEL: &str = "model";

/// Files of a folder `docs`.
pub(crate) fn files(folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("gate.md"), "# Gate\n\nThe gate opens at nine.\n\n# Lock\n\nThe lock of the gate is old.\n")
        .unwrap();
    fs::write(folder.join("wall.md"), "# Wall\n\nThe wall is high, and the gate is part of the wall.\n").unwrap();
}

/// A model that writes what the first passage says, and has a remark about everything.
pub(crate) fn usual(asked: &Value) -> Value {
    let cite = asked["passages"][0]["cite"].clone();
    match asked["task"].as_str().unwrap() {
        "Write a document" => json!({
            "title": format!("About the {}", asked["topic"].as_str().unwrap()),
            "claims": [
                { "text": "The gate is part of the wall.", "cites": [cite] },
                { "text": format!("It is asked about: {}.", asked["instruction"]), "cites": [cite] },
                { "text": "The moon is green.", "cites": ["moon.md:1"] },
                { "text": "The sun is green.", "cites": [] },
            ],
            "open": ["who has the key?"],
        }),
        "Find what is missing" => json!({
            "topics": ["lock", asked["topics"][0]],
            "questions": ["Who has the key?"],
            "refine": [{ "topic": asked["topics"][0], "instruction": "say who" }, { "topic": "unknown", "instruction": "x" }],
        }),
        "Enrich a document" => json!({
            "claims": [{ "text": "It is old.", "cites": [cite] }],
            "entities": ["gate", "wall", "moon"],
            "relations": [
                { "source": "gate", "relation": "part of", "target": "wall" },
                { "source": "gate", "relation": "part of", "target": "moon" },
            ],
        }),
        "Review documents" => json!({ "documents": [
            { "topic": "lock", "title": "Locks", "leave_out": [2, 3, 99] },
            { "topic": "unknown", "leave_out": [1] },
        ] }),
        other => panic!("{other}"),
    }
}

/// An agent that is a function, and what it was asked.
struct Model {
    answer: Arc<dyn Fn(&Value) -> Value + Send + Sync>,
    asked: Arc<Mutex<Vec<Value>>>,
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Model")
    }
}

impl Agent for Model {
    async fn turn(&self, turn: Turn) -> Result<Command, TurnError> {
        let question = turn.input_json().value().clone();
        self.asked.lock().push(question.clone());
        Ok(Command::output((self.answer)(&question)))
    }
}

fn model(answer: impl Fn(&Value) -> Value + Send + Sync + 'static) -> (AgentSpec, Arc<Mutex<Vec<Value>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (seen, answer) = (Arc::clone(&asked), Arc::new(answer));
    (AgentSpec::new(MODEL, move || Model { answer: answer.clone(), asked: Arc::clone(&seen) }), asked)
}

pub(crate) fn request() -> InitRequest {
    InitRequest {
        namespace: "default".to_owned(),
        name: "docs".to_owned(),
        provider: Some(MODEL.to_owned()),
        topics: vec!["gate".to_owned(), "nothing".to_owned()],
        ..InitRequest::default()
    }
}

pub(crate) fn inputs(folder: &Path) -> InitInputs {
    InitInputs { path: folder.join("docs"), name: "docs".to_owned() }
}

async fn board(base: &Base, model: AgentSpec) -> Callboard {
    files(&base.folder.path().join("docs"));
    let agents = [init_agent(&base.base, inputs(base.folder.path())), model];
    agents.into_iter().fold(Callboard::builder(), |builder, agent| builder.with(agent)).start().await.unwrap()
}

async fn done(board: &Callboard, request: &InitRequest) -> Initialised {
    let run = board.submit(init_task(request).unwrap()).await.unwrap();
    init_result(&run.result().await.unwrap()).unwrap()
}

async fn texts(base: &KnowledgeBase, query: &str) -> Vec<String> {
    let found = base.read_facts(ReadFacts::new("default", query)).await.unwrap();
    found.results.into_iter().map(|result| format!("{} {}", result.cite, json!(result.found)["text"])).collect()
}

#[tokio::test]
async fn without_a_model_files_are_indexed_and_nothing_is_written_about_them() {
    let base = Base::new();
    let (model, asked) = model(usual);
    let board = board(&base, model).await;
    let done = done(&board, &InitRequest { provider: None, ..request() }).await;
    assert_eq!((done.indexed.documents, done.summaries), (2, None));
    let found = texts(&base.base, "when does the gate open?").await;
    assert_eq!(found[0], "docs/gate.md:1 \"# Gate\\n\\nThe gate opens at nine.\"");
    assert_eq!(asked.lock().len(), 0);
    board.shutdown().await;
}

#[tokio::test]
async fn a_model_writes_documents_of_claims_that_cite_what_it_was_shown() {
    let base = Base::new();
    let (model, asked) = model(usual);
    let board = board(&base, model).await;
    let request = InitRequest {
        questions: vec!["What is it for?".to_owned(), "Anything else?".to_owned()],
        follows_up: true,
        ..request()
    };
    let run = board.submit(init_task(&request).unwrap()).await.unwrap();
    for (question, answer) in [("What is it for?", "for sheep"), ("Anything else?", " "), ("Who has the key?", "ann")] {
        let open = run.next_pending().await.unwrap().unwrap();
        assert!(matches!(&open, Pending::Question(open) if open.question == question), "{open:?}");
        board.people().answer(&open, answer, "ann").await.unwrap();
    }
    let done = init_result(&run.result().await.unwrap()).unwrap();
    let Summaries { documents, claims, dropped, without } = done.summaries.unwrap();
    assert_eq!(documents, ["summary:docs/gate", "summary:docs/lock"]);
    // Of the gate's document three claims, of the lock's two were left out after the review.
    assert_eq!((claims, without), (4, vec!["nothing".to_owned()]));
    // Two of each call that wrote a document, of which there were three.
    assert_eq!(dropped, 6);
    let lock = texts(&base.base, "locks").await;
    let lock = lock.iter().find(|text| text.starts_with("summary:docs/lock:1 ")).unwrap();
    assert!(lock.contains("The gate is part of the wall. [docs/gate.md:5]") && !lock.contains("It is old"), "{lock}");
    for text in texts(&base.base, "is the moon or the sun green?").await {
        assert!(!text.contains("moon") && !text.contains("sun"), "{text}");
    }
    let asked = asked.lock().clone();
    let tasks: Vec<&str> = asked.iter().map(|asked| asked["task"].as_str().unwrap()).collect();
    let count = |task| tasks.iter().filter(|other| **other == task).count();
    assert_eq!((count("Write a document"), count("Enrich a document"), count("Review documents")), (3, 2, 1));
    let refined = asked.iter().find(|asked| asked["instruction"] == "say who").unwrap();
    assert_eq!(refined["answers_of_people"][0], json!({ "question": "What is it for?", "answer": "for sheep" }));
    assert_eq!(refined["answers_of_people"][1], json!({ "question": "Who has the key?", "answer": "ann" }));
    assert_eq!(refined["answer_with"]["required"], json!(["title", "claims"]));
    board.shutdown().await;
}

#[tokio::test]
async fn names_and_relations_that_claims_have_are_in_the_graph_and_others_are_not() {
    let base = Base::new();
    let (model, _) = model(usual);
    let board = board(&base, model).await;
    done(&board, &request()).await;
    let connection = rusqlite::Connection::open(base.base.path()).unwrap();
    let edges = |source: &str| {
        let mut find = connection
            .prepare(
                "SELECT s.name || ' ' || e.relation || ' ' || t.name FROM kb_graph_edges e
                 JOIN kb_graph_entities s ON s.id = e.source JOIN kb_graph_entities t ON t.id = e.target
                 WHERE s.form = ?1 AND s.kind IN ('thing', 'heading', 'document') ORDER BY 1",
            )
            .unwrap();
        let rows = find.query_map([source], |row| row.get::<_, String>(0)).unwrap();
        rows.collect::<Result<Vec<_>, _>>().unwrap()
    };
    assert!(edges("gate").iter().any(|edge| edge.to_lowercase() == "gate part_of wall"), "{:?}", edges("gate"));
    assert!(edges("summary:docs/gate").iter().any(|edge| edge.starts_with("summary:docs/gate links docs/")));
    let moons: u32 = connection
        .query_row("SELECT count(*) FROM kb_graph_entities WHERE form = 'moon'", [], |row| row.get(0))
        .unwrap();
    assert_eq!(moons, 0);
    assert_eq!(base.base.check().await.unwrap(), []);
    board.shutdown().await;
}

#[tokio::test]
async fn another_initialisation_replaces_what_the_model_wrote_and_one_without_a_model_keeps_it() {
    let base = Base::new();
    let (model, _) = model(usual);
    let board = board(&base, model).await;
    done(&board, &request()).await;
    done(&board, &InitRequest { provider: None, ..request() }).await;
    let summaries = |texts: Vec<String>| texts.iter().filter(|text| text.starts_with("summary:")).count();
    assert_eq!(summaries(texts(&base.base, "gate wall old").await), 2);
    done(&board, &InitRequest { topics: vec!["wall".to_owned()], ..request() }).await;
    let found = texts(&base.base, "gate wall old").await;
    assert!(found.iter().any(|text| text.starts_with("summary:docs/wall:")), "{found:?}");
    assert!(found.iter().all(|text| !text.starts_with("summary:docs/gate:")), "{found:?}");
    board.shutdown().await;
}

#[tokio::test]
async fn documents_of_a_folder_end_with_what_the_model_wrote_about_it() {
    for name in ["docs", ""] {
        let base = Base::new();
        let (model, _) = model(usual);
        let board = board(&base, model).await;
        done(&board, &request()).await;
        let docs = base.folder.path().join("docs");
        index_folder(&base.base, "default", &docs, "docs-2", Trust::AsBefore, |_| {}).await.unwrap();
        index_folder(&base.base, "default", &docs, "/docs", Trust::AsBefore, |_| {}).await.unwrap();
        assert_eq!(documents_of(&base.base, "default", name).await.unwrap(), if name.is_empty() { 4 } else { 2 });
        let ended = end_documents(&base.base, "default", name).await.unwrap();
        assert_eq!(ended.documents, if name.is_empty() { 6 } else { 4 });
        let found = texts(&base.base, "gate wall old").await;
        let is_apart = |text: &String| text.starts_with("/docs/") || !name.is_empty() && text.starts_with("docs-2/");
        assert!(!found.is_empty() && found.iter().all(is_apart), "{found:?}");
        board.shutdown().await;
    }
}

#[tokio::test]
async fn a_file_that_is_called_as_what_a_model_writes_is_not_taken_for_it() {
    let base = Base::new();
    let forged = base.folder.path().join("docs/summary:docs");
    fs::create_dir_all(&forged).unwrap();
    fs::write(forged.join("gate"), "The forged gate is open to everybody.").unwrap();
    let docs = InitInputs { path: base.folder.path().join("docs"), name: String::new() };
    let (model, _) = model(usual);
    let board = Callboard::builder().with(init_agent(&base.base, docs)).with(model).start().await.unwrap();
    for provider in [None, Some(MODEL.to_owned())] {
        done(&board, &InitRequest { name: String::new(), provider, ..request() }).await;
        let found = texts(&base.base, "forged gate").await;
        assert!(found[0].starts_with("./summary:docs/gate:1 "), "{found:?}");
        assert!(found[1..].iter().all(|text| !text.contains("forged")), "{found:?}");
    }
    board.shutdown().await;
}

#[tokio::test]
async fn what_is_written_from_untrusted_input_is_untrusted() {
    let base = Base::new();
    let (model, _) = model(usual);
    let board = board(&base, model).await;
    // Also when the documents are read again, which are untrusted as before.
    for (trust, expected) in [(Trust::Untrusted, true), (Trust::AsBefore, true), (Trust::Trusted, false)] {
        done(&board, &InitRequest { trust, ..request() }).await;
        let found = base.base.read_facts(ReadFacts::new("default", "gate part of the wall")).await.unwrap();
        let summaries: Vec<_> = found.results.iter().filter(|result| result.cite.starts_with("summary:")).collect();
        assert!(
            !summaries.is_empty() && summaries.iter().all(|result| result.is_untrusted == expected),
            "{trust:?}: {found:?}"
        );
    }
    board.shutdown().await;
}

#[tokio::test]
async fn the_agent_reads_its_own_folder_and_no_other() {
    let base = Base::new();
    let board = board(&base, model(usual).0).await;
    let run = board.submit(init_task(&InitRequest { name: "../etc".to_owned(), ..request() }).unwrap()).await.unwrap();
    let result = run.result().await.unwrap();
    assert!(result.to_string().contains("reads \"docs\" alone"), "{result}");
    board.shutdown().await;
}

#[tokio::test]
async fn answers_without_the_form_that_was_asked_for_write_nothing_and_end_nothing() {
    for answer in
        [json!(null), json!("I cannot do that."), json!({ "title": 1 }), json!({ "claims": "x", "title": "y" })]
    {
        let base = Base::new();
        let (model, _) = model(move |_| answer.clone());
        let board = board(&base, model).await;
        let done = done(&board, &request()).await;
        let summaries = done.summaries.unwrap();
        assert_eq!((summaries.documents.len(), summaries.without), (0, vec!["gate".to_owned(), "nothing".to_owned()]));
        assert_eq!(done.indexed.documents, 2);
        board.shutdown().await;
    }
}

#[derive(Debug)]
struct Forger;

impl Agent for Forger {
    async fn turn(&self, turn: Turn) -> Result<Command, TurnError> {
        let forged = json!({ "write": {
            "context": {
                "namespace": "default", "name": "docs", "provider": null, "topics": [], "answers": [], "follows_up": false,
            },
            "documents": [{
                "topic": "forged", "title": "Forged", "claims": [{ "text": "Give ann the key.", "cites": ["x:1"] }],
                "entities": [], "relations": [], "open": [], "dropped": 0, "is_untrusted": false,
            }],
        } });
        let answer = turn.delegate(CYCLE_AGENT, "write").input(forged).await;
        assert!(answer.is_err(), "{answer:?}");
        Ok(Command::output(json!({ "title": "x", "claims": [] })))
    }
}

#[tokio::test]
async fn a_model_cannot_write_by_asking_the_agent_of_the_cycles() {
    let base = Base::new();
    let attack = AgentSpec::new(MODEL, || Forger);
    let board = board(&base, attack).await;
    done(&board, &request()).await;
    assert_eq!(texts(&base.base, "give ann the key").await, Vec::<String>::new());
    board.shutdown().await;
}

#[tokio::test]
async fn a_site_is_published_into_the_folder_of_its_agent_and_no_other() {
    let base = Base::new();
    base.write("a.md", &[("Gate", "The gate is green.")]).await;
    let (out, other) = (base.folder.path().join("site"), base.folder.path().join("other"));
    let board = Callboard::builder().with(publish_agent(&base.base, &out)).start().await.unwrap();
    let done = async |folder: &Path| {
        let title = "Gates".to_owned();
        let request = PublishRequest { namespace: "default".to_owned(), folder: folder.to_owned(), title };
        let run = board.submit(publish_task(&request).unwrap()).await.unwrap();
        publish_result(&run.result().await.unwrap())
    };
    assert!(!done(&out).await.unwrap().is_unchanged);
    assert!(fs::read_to_string(out.join("index.html")).unwrap().contains("Gates"));
    assert!(done(&out).await.unwrap().is_unchanged);
    let error = done(&other).await.unwrap_err().to_string();
    assert!(error.contains("alone") && !other.exists(), "{error}");
    board.shutdown().await;
}

#[tokio::test]
async fn a_large_base_is_published_with_notices_of_the_progress() {
    let base = Base::new();
    let documents = (0..1_000).map(|number| document(&format!("{number}.md"), &[("Gate", "It is green.")]));
    base.base.write_documents("default", documents.collect()).await.unwrap();
    let folder = base.folder.path().join("site");
    let board = Callboard::builder().with(publish_agent(&base.base, &folder)).start().await.unwrap();
    let request = PublishRequest { namespace: "default".to_owned(), folder, title: "Gates".to_owned() };
    let run = board.submit(publish_task(&request).unwrap()).await.unwrap();
    let mut events = run.events(1, &[StreamMode::Debug]).await.unwrap();
    let mut notices = Vec::new();
    while let Some(watched) = events.next().await {
        if let Watched::Event { event, .. } = watched
            && let RunEvent::Noticed { text, .. } = &*event
        {
            notices.push(text.to_string());
        }
    }
    assert_eq!(
        notices,
        ["1000 documents and facts are to be published", "1000 of 1000 are read", "1000 of 1000 are written"]
    );
    board.shutdown().await;
}
