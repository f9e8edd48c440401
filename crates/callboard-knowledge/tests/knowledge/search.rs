//! What queries find.

use callboard::messages::Timestamp;
use callboard_knowledge::entities::{EntityKind, Named, Relation};
use callboard_knowledge::search::{Depth, Found, ReadFacts, Retrieved, Status};
use callboard_knowledge::store::{ChangeKind, ChangeRequest, Submission};

use crate::support::{Base, document, source, submission, untrusted};

async fn found(base: &Base, query: &str) -> Retrieved {
    base.base.read_facts(ReadFacts::new("default", query)).await.unwrap()
}

fn cites(retrieved: &Retrieved) -> Vec<&str> {
    retrieved.results.iter().map(|result| &*result.cite).collect()
}

#[tokio::test]
async fn passages_are_ranked_and_cited_by_their_places() {
    let base = Base::new();
    let sections = [
        ("Auth > Tokens", "A token is checked against the store at each request."),
        ("Auth > Rotation", "Keys rotate each month. A token outlives its key by a day."),
        ("Install", "Run the installer and answer its questions."),
    ];
    base.write("docs/auth.md", &sections).await;
    let retrieved = found(&base, "how is a token checked?").await;
    assert_eq!(cites(&retrieved), ["docs/auth.md:1", "docs/auth.md:2"]);
    assert!(retrieved.results[0].score > retrieved.results[1].score);
    assert_eq!(retrieved.results[0].why.words, ["token", "checked"]);
    assert!(matches!(&retrieved.results[0].found, Found::Passage { title, .. } if title == "Auth > Tokens"));
    assert!(retrieved.confidence > 0.3, "{retrieved:#?}");
}

#[tokio::test]
async fn passages_that_begin_on_one_line_are_cited_apart() {
    let base = Base::new();
    base.clock.set(1_000);
    let mut minified =
        document("page.html", &[("A", "the gate"), ("B", "the old gate"), ("C", "the new gate"), ("D", "a gate")]);
    for (passage, line) in minified.passages.iter_mut().zip([1, 1, 1, 2]) {
        passage.lines = line..=line;
    }
    base.base.write_documents("default", vec![minified]).await.unwrap();
    let sorted = |retrieved: Retrieved| {
        let mut cites: Vec<String> = retrieved.results.into_iter().map(|result| result.cite).collect();
        cites.sort();
        cites
    };
    let expected = ["page.html:1", "page.html:1.2", "page.html:1.3", "page.html:2"];
    assert_eq!(sorted(found(&base, "gate").await), expected);
    base.clock.set(2_000);
    base.write("page.html", &[("A", "the wall"), ("D", "a gate")]).await;
    assert_eq!(sorted(found(&base, "gate").await), ["page.html:2"]);
}

#[tokio::test]
async fn identifiers_are_found_in_each_way_of_writing_them() {
    let base = Base::new();
    base.write("a.rs", &[("", "fn readFacts() {}")]).await;
    base.write("b.rs", &[("", "fn read_facts() {}")]).await;
    for query in ["read_facts", "readFacts", "ReadFacts", "read facts", "facts"] {
        let retrieved = found(&base, query).await;
        let mut cites = cites(&retrieved);
        cites.sort_unstable();
        assert_eq!(cites, ["a.rs:1", "b.rs:1"], "{query}");
    }
}

#[tokio::test]
async fn what_is_not_there_is_a_miss_without_confidence() {
    let base = Base::new();
    base.write("a.md", &[("", "one")]).await;
    for query in ["zebra", "", "\"", "* OR", "title:"] {
        let retrieved = found(&base, query).await;
        assert_eq!(retrieved.results, [], "{query}");
        assert_eq!(retrieved.confidence, 0.0);
        assert!(retrieved.checkpoints.iter().all(|checkpoint| checkpoint.status == Status::Miss), "{query}");
    }
}

#[tokio::test]
async fn a_query_of_the_past_finds_what_held_then() {
    let base = Base::new();
    base.clock.set(10_000);
    let fact = base.submit("the gate opens at nine").await.fact;
    base.write("gate.md", &[("Gate", "The gate is green.")]).await;
    base.clock.set(20_000);
    let request = ChangeRequest {
        kind: ChangeKind::Invalidate,
        fact: fact.id,
        reason: "it does not".to_owned(),
        by: "ann".to_owned(),
        run: None,
    };
    let hash = base.base.preview(&request).await.unwrap().hash;
    base.base.apply(request, &hash, None).await.unwrap();
    base.write("gate.md", &[("Gate", "The gate is blue.")]).await;
    let at = |millis| ReadFacts { as_of: Some(Timestamp::from_millis(millis)), ..ReadFacts::new("default", "gate") };
    let texts = |retrieved: Retrieved| {
        let mut texts: Vec<String> = retrieved
            .results
            .into_iter()
            .map(|result| match result.found {
                Found::Fact(fact) => fact.statement,
                Found::Passage { text, .. } => text,
            })
            .collect();
        texts.sort();
        texts
    };
    assert_eq!(texts(base.base.read_facts(at(9_999)).await.unwrap()), [""; 0]);
    let then = texts(base.base.read_facts(at(15_000)).await.unwrap());
    assert_eq!(then, ["The gate is green.", "the gate opens at nine"]);
    assert_eq!(texts(base.base.read_facts(at(20_000)).await.unwrap()), ["The gate is blue."]);
    assert_eq!(texts(found(&base, "gate").await), ["The gate is blue."]);
}

#[tokio::test]
async fn a_query_of_the_past_has_the_sources_and_the_revision_of_then() {
    let base = Base::new();
    for (millis, by) in [(10_000, "ann"), (20_000, "ben"), (30_000, "cal")] {
        base.clock.set(millis);
        let submission = Submission { source: source(by), ..submission("the gate opens at nine") };
        base.base.submit(submission).await.unwrap();
    }
    let mut confidence = 0.0;
    for (millis, by) in [(10_000, &["ann"][..]), (29_999, &["ann", "ben"]), (30_000, &["ann", "ben", "cal"])] {
        let as_of = Some(Timestamp::from_millis(millis));
        let mut then = base.base.read_facts(ReadFacts { as_of, ..ReadFacts::new("default", "gate") }).await.unwrap();
        let Found::Fact(fact) = then.results.remove(0).found else { panic!("no fact") };
        assert_eq!(fact.sources.iter().map(|source| &*source.by).collect::<Vec<_>>(), by);
        assert_eq!((fact.revision, fact.valid_from), (by.len() as u64, Timestamp::from_millis(10_000)));
        assert!(then.confidence > confidence, "{}", then.confidence);
        confidence = then.confidence;
    }
}

#[tokio::test]
async fn a_deep_query_follows_links() {
    let base = Base::new();
    let mut linking = document("a.md", &[("Start", "The zebra is described elsewhere.")]);
    linking.passages[0].links.push("b.md".to_owned());
    base.base.write_documents("default", vec![linking]).await.unwrap();
    base.write("b.md", &[("Animals", "It has stripes.")]).await;
    assert_eq!(cites(&found(&base, "zebra").await), ["a.md:1", "b.md:1"]);
    assert_eq!(cites(&base.base.read_facts(shallow("zebra")).await.unwrap()), ["a.md:1"]);
}

fn shallow(query: &str) -> ReadFacts {
    ReadFacts { discovery_depth: Depth::Shallow, ..ReadFacts::new("default", query) }
}

#[tokio::test]
async fn a_deep_query_expands_a_word_to_names_of_the_graph() {
    let base = Base::new();
    let mut naming = document("login.md", &[("Login", "Authentication has two steps.")]);
    naming.passages[0].named.push(Named {
        name: "Authentication".to_owned(),
        kind: EntityKind::Thing,
        relation: Relation::Mentions,
    });
    base.base.write_documents("default", vec![naming]).await.unwrap();
    base.write("people.md", &[("", "The author has two names.")]).await;
    let retrieved = found(&base, "auth steps").await;
    assert_eq!(cites(&retrieved), ["login.md:1"]);
    let why = &retrieved.results[0].why;
    assert_eq!(why.words, ["auth", "steps"]);
    assert_eq!(why.graph, ["has a name that begins with a word"]);
    assert!(why.coverage < 1.0, "half of the word is not all of it");
    assert_eq!(cites(&found(&base, "auth").await), ["login.md:1"], "a text that is no name of the graph is not found");
    assert_eq!(cites(&base.base.read_facts(shallow("auth")).await.unwrap()), [""; 0]);
    // What has the word itself is better.
    base.write("auth.md", &[("", "The auth of both steps.")]).await;
    assert_eq!(cites(&found(&base, "auth steps").await)[0], "auth.md:1");
    // A name of what is gone is no name of the graph.
    base.write("login.md", &[("Login", "Authentication has three steps.")]).await;
    assert_eq!(cites(&found(&base, "auth").await), ["auth.md:1"]);
}

#[tokio::test]
async fn a_deep_query_for_a_failure_is_answered_below_a_heading_of_failures() {
    let base = Base::new();
    let noise: Vec<(String, String)> = (0..200)
        .map(|number| (format!("Gate {number}"), "It breaks if the gate is empty, empty, empty.".to_owned()))
        .collect();
    let noise: Vec<(&str, &str)> = noise.iter().map(|(title, text)| (&**title, &**text)).collect();
    base.write("noise.md", &noise).await;
    let text = "If a side of what is opened here has no hinges at all, or if the lock is empty.";
    base.write("api.md", &[("api > open > Panics", text), ("api > open", text)]).await;
    assert_eq!(cites(&found(&base, "what breaks if it is empty").await)[0], "api.md:1");
    let of_words = base.base.read_facts(shallow("what breaks if it is empty")).await.unwrap();
    assert!(of_words.results.iter().all(|result| result.cite.starts_with("noise")));
}

#[tokio::test]
async fn a_current_fact_counts_more_than_a_passage_and_a_disputed_one_does_not() {
    let base = Base::new();
    base.write("a.md", &[("", "the gate opens at nine")]).await;
    let fact = base.submit("The gate opens at nine!").await.fact;
    let disputed = base.base.submit(untrusted(submission("At nine the gate opens"))).await.unwrap().fact;
    for depth in [Depth::Shallow, Depth::Deep] {
        let query = ReadFacts { discovery_depth: depth, ..ReadFacts::new("default", "when opens the gate") };
        let retrieved = base.base.read_facts(query).await.unwrap();
        assert_eq!(cites(&retrieved), [&*fact.id.to_string(), "a.md:1", &*disputed.id.to_string()], "{depth:?}");
    }
}

#[tokio::test]
async fn a_document_that_was_read_again_keeps_the_passages_that_it_still_has() {
    let base = Base::new();
    base.write("a.md", &[("One", "first"), ("Two", "second")]).await;
    let again = document("a.md", &[("Two", "second"), ("Three", "third")]);
    let written = base.base.write_documents("default", vec![again.clone()]).await.unwrap();
    assert_eq!((written.added, written.kept, written.ended), (1, 1, 1));
    let written = base.base.write_documents("default", vec![again]).await.unwrap();
    assert_eq!((written.added, written.kept, written.ended), (0, 2, 0));
    assert_eq!(cites(&found(&base, "second").await), ["a.md:1"]);
    assert_eq!(cites(&found(&base, "first").await), [""; 0]);
}

#[tokio::test]
async fn a_word_that_a_query_did_not_find_is_found_once_a_row_has_it() {
    let base = Base::new();
    base.write("a.md", &[("", "the gate")]).await;
    assert_eq!(cites(&found(&base, "zebra").await), [""; 0]);
    base.write("b.md", &[("", "the zebra")]).await;
    assert_eq!(cites(&found(&base, "zebra").await), ["b.md:1"]);
}

#[tokio::test]
async fn a_query_of_common_words_finds_what_has_most_of_them() {
    let base = Base::new();
    // More rows than get scores of their own have each of the words.
    let sections: Vec<(String, String)> = (0..10_001)
        .map(|number| (format!("{number}"), if number == 7 { "gate door".to_owned() } else { "gate".to_owned() }))
        .collect();
    let sections: Vec<(&str, &str)> = sections.iter().map(|(title, text)| (&**title, &**text)).collect();
    base.write("a.md", &sections).await;
    let others: Vec<(&str, &str)> = sections.iter().map(|(title, _)| (*title, "door")).collect();
    base.write("b.md", &others).await;
    for depth in [Depth::Shallow, Depth::Deep] {
        let query = ReadFacts { discovery_depth: depth, ..ReadFacts::new("default", "gate door") };
        let retrieved = base.base.read_facts(query).await.unwrap();
        assert_eq!(retrieved.results[0].cite, "a.md:8", "{depth:?}");
        assert_eq!(retrieved.results.len(), 10);
        assert_eq!(retrieved.checkpoints[1].step, "common words together");
    }
}
