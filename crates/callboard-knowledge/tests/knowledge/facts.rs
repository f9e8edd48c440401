//! Facts: submitted, contradicted, invalidated, accepted, and their history.

use callboard::env::Env;
use callboard_knowledge::facts::{Contradiction, FactState, OnContradiction, Source, Statement, Triple};
use callboard_knowledge::search::ReadFacts;
use callboard_knowledge::store::{ChangeKind, ChangeRequest, RevisionChange, Submission};
use callboard_knowledge::{KnowledgeBase, KnowledgeError};

use crate::support::{Base, applied, change, single, source, submission, untrusted};

/// A statement of these words with the parts of [`single`].
fn worded(words: &str, [subject, predicate, value]: [&str; 3]) -> Submission {
    let parts = single(subject, predicate, value);
    Submission { statement: Statement::new(words, parts.statement.triple().cloned()).unwrap(), ..parts }
}

#[tokio::test]
async fn a_fact_that_is_stated_again_is_reported_with_what_contradicts_it() {
    let base = Base::new();
    let parts = ["the regex", "speed", "linear"];
    let linear = base.base.submit(worded("The regex is linear.", parts)).await.unwrap().fact.id;
    let other = base.base.submit(single("the regex", "speed", "quadratic")).await.unwrap();
    assert_eq!(other.contradictions.iter().map(|with| with.fact).collect::<Vec<_>>(), [linear]);
    let again = || async {
        let again = base.submit("the regex IS linear").await;
        assert_eq!((again.is_new, again.fact.id, again.fact.state), (false, linear, FactState::Current));
        again.contradictions.into_iter().map(|with| with.fact).collect::<Vec<_>>()
    };
    assert_eq!(again().await, [other.fact.id]);
    // Also where it had become invalid meanwhile; and an invalid fact contradicts nothing.
    applied(&base, ChangeKind::Invalidate, linear).await;
    assert_eq!(again().await, [other.fact.id]);
    applied(&base, ChangeKind::Invalidate, other.fact.id).await;
    assert_eq!(again().await, []);
}

#[tokio::test]
async fn the_same_fact_twice_is_one_fact_with_two_sources() {
    let base = Base::new();
    let first = base.submit("The gate opens at nine.").await;
    assert!(first.is_new && first.fact.state == FactState::Current);
    let again = Submission { source: source("bob"), ..submission("the  gate opens at NINE") };
    let again = base.base.submit(again).await.unwrap();
    assert!(!again.is_new);
    assert_eq!(again.fact.id, first.fact.id);
    assert_eq!(again.fact.statement, "The gate opens at nine.");
    assert_eq!(again.fact.sources.iter().map(|source| &*source.by).collect::<Vec<_>>(), ["ann", "bob"]);
    assert_eq!(again.fact.revision, 2);
}

#[tokio::test]
async fn a_fact_that_was_invalid_and_is_stated_again_has_the_change_that_invalidated_it() {
    let base = Base::new();
    let fact = base.submit("The gate opens at nine.").await.fact.id;
    base.clock.set(2_000);
    applied(&base, ChangeKind::Invalidate, fact).await;
    base.clock.set(3_000);
    let again = base.submit("The gate opens at nine.").await;
    let was = again.was_invalid.unwrap();
    assert_eq!((was.change, &*was.by, &*was.reason), (RevisionChange::Invalidated, "ann", "it is so"));
    assert_eq!((was.at.as_millis(), again.fact.state, again.is_new), (2_000, FactState::Current, false));
    let twice = base.submit("The gate opens at nine.").await;
    assert_eq!((twice.was_invalid, twice.has_other_words), (None, false));
}

#[tokio::test]
async fn the_same_parts_in_other_words_are_a_source_of_the_fact_that_keeps_its_words() {
    let base = Base::new();
    let parts = ["gate", "opens at", "nine"];
    base.base.submit(worded("The gate opens at nine.", parts)).await.unwrap();
    for _ in 0..2 {
        let other = base.base.submit(worded("At nine they open it.", parts)).await.unwrap();
        assert!(other.has_other_words && other.fact.statement == "The gate opens at nine.", "{other:?}");
    }
    let same = base.base.submit(worded("the gate opens  at nine", parts)).await.unwrap();
    assert!(!same.has_other_words && same.fact.sources.len() == 4, "{same:?}");
}

#[tokio::test]
async fn lists_have_the_newest_facts_and_what_else_a_namespace_has() {
    let base = Base::new();
    let first = base.base.submit(single("gate", "opens at", "nine")).await.unwrap().fact.id;
    base.clock.set(2_000);
    let second = base.submit("Keys rotate each month.").await.fact.id;
    base.clock.set(3_000);
    let third = base.base.submit(single("gate", "opens at", "ten")).await.unwrap().fact.id;
    base.base.submit(Submission { namespace: "other".to_owned(), ..submission("The wall is high.") }).await.unwrap();
    base.clock.set(4_000);
    applied(&base, ChangeKind::Invalidate, first).await;
    let list = async |states: &[FactState], limit| {
        let found = base.base.facts("default", states, limit).await.unwrap();
        (found.rows.iter().map(|fact| fact.id).collect::<Vec<_>>(), found.count)
    };
    assert_eq!(list(&FactState::ALL, 9).await, (vec![first, third, second], 3));
    assert_eq!(list(&FactState::ALL, 2).await, (vec![first, third], 3));
    assert_eq!(list(&[FactState::Disputed], 9).await, (vec![third], 1));
    assert_eq!(list(&[], 9).await, (Vec::new(), 0));

    base.base.declare_predicate("default", "is", false).await.unwrap();
    let parts = Statement::new("a b c", Some(Triple { subject: "a".into(), predicate: "B".into(), value: "c".into() }));
    base.base.submit(Submission { statement: parts.unwrap(), ..submission("x") }).await.unwrap();
    let predicates = base.base.predicates("default", 9).await.unwrap();
    let rows: Vec<_> = predicates.rows.iter().map(|row| (&*row.predicate, row.is_single, row.facts)).collect();
    assert_eq!(rows, [("b", None, 1), ("is", Some(false), 0), ("opens at", Some(true), 1)]);
    assert_eq!(base.base.predicates("default", 1).await.unwrap().count, 3);

    base.write("b.md", &[("B", "One."), ("B", "Two.")]).await;
    base.write("a.md", &[("A", "Three.")]).await;
    base.write("gone.md", &[("Gone", "Four.")]).await;
    base.base.end_document("default", "gone.md").await.unwrap();
    let documents = base.base.documents("default", 1).await.unwrap();
    assert_eq!((&*documents.rows[0].document, documents.rows[0].passages, documents.count), ("a.md", 1, 2));
    let namespaces = base.base.namespaces(9).await.unwrap();
    let counts =
        namespaces.rows.iter().map(|row| (&*row.namespace, row.documents, [row.current, row.disputed, row.invalid]));
    assert_eq!(counts.collect::<Vec<_>>(), [("default", 2, [2, 1, 1]), ("other", 0, [1, 0, 0])]);
}

#[tokio::test]
async fn trusted_sources_are_kept_in_place_of_the_newest_untrusted_ones() {
    let base = Base::new();
    let by = |by: &str, is_untrusted| Submission {
        source: Source { is_untrusted, ..source(by) },
        ..submission("The gate opens at nine.")
    };
    for number in 1..=102 {
        base.base.submit(by(&format!("bot {number}"), true)).await.unwrap();
    }
    for person in ["ann", "bob"] {
        base.base.submit(by(person, false)).await.unwrap();
    }
    let fact = base.base.submit(by("bot 103", true)).await.unwrap().fact;
    let kept: Vec<&str> = fact.sources.iter().map(|source| &*source.by).collect();
    assert_eq!((kept.len(), kept[0], &kept[97..]), (100, "bot 1", &["bot 98", "ann", "bob"][..]));
    let (export, _) = base.base.export(Vec::new()).await.unwrap();
    let other = Base::new();
    other.base.import(std::io::Cursor::new(export)).await.unwrap();
    let there = other.base.submit(by("eve", false)).await.unwrap().fact;
    assert_eq!(there.sources.iter().map(|source| &*source.by).collect::<Vec<_>>()[97..], ["ann", "bob", "eve"]);
}

#[tokio::test]
async fn a_change_with_a_long_reason_is_refused_and_changes_nothing() {
    let base = Base::new();
    let fact = base.submit("The gate opens at nine.").await.fact.id;
    let shown = base.base.preview(&change(ChangeKind::Invalidate, fact)).await.unwrap();
    let long = "x".repeat(1025);
    let request = || change(ChangeKind::Invalidate, fact);
    for (request, what) in [
        (ChangeRequest { reason: long.clone(), ..request() }, "the reason"),
        (ChangeRequest { by: long.clone(), ..request() }, "the name of whoever asks"),
        (ChangeRequest { run: Some(long.clone()), ..request() }, "the run"),
    ] {
        let expected = format!("{what} has 1025 bytes; at most 1024 are allowed");
        assert_eq!(base.base.preview(&request).await.unwrap_err().to_string(), expected);
        assert_eq!(base.base.apply(request, &shown.hash, None).await.unwrap_err().to_string(), expected);
    }
    assert_eq!(base.base.fact(fact).await.unwrap().state, FactState::Current);
    let request = ChangeRequest { reason: "x".repeat(1024), ..request() };
    base.base.apply(request, &shown.hash, None).await.unwrap();
}

#[tokio::test]
async fn a_submission_whose_source_is_too_long_is_refused() {
    let base = Base::new();
    let long = || "x".repeat(1025);
    for (source, what) in [
        (source(&long()), "the name of whoever submits"),
        (Source { place: Some(long()), ..source("ann") }, "the place"),
        (Source { run: Some(long()), ..source("ann") }, "the run"),
    ] {
        let error = base.base.submit(Submission { source, ..submission("The gate is green.") }).await.unwrap_err();
        assert_eq!(error.to_string(), format!("{what} has 1025 bytes; at most 1024 are allowed"));
    }
    assert_eq!(base.base.counts().await.unwrap().current, 0);
}

#[tokio::test]
async fn the_same_triple_in_other_words_is_the_same_fact_and_so_are_these_words_later() {
    let base = Base::new();
    let first = base.base.submit(single("gate", "opens at", "nine")).await.unwrap();
    let mut other = single("Gate", "opens  at", "NINE");
    other.statement = Statement::new("Nine is when the gate opens.", other.statement.triple().cloned()).unwrap();
    assert_eq!(base.base.submit(other).await.unwrap().fact.id, first.fact.id);
    assert_eq!(base.submit("nine is when the gate opens").await.fact.id, first.fact.id);
}

#[tokio::test]
async fn the_same_words_with_another_value_are_refused_and_are_no_source() {
    let base = Base::new();
    let with = |is_single: bool, predicate: &str, value: &str| {
        let (subject, predicate, value) = ("x".to_owned(), predicate.to_owned(), value.to_owned());
        let words = format!("The {predicate} is 80.");
        let statement = Statement::new(&words, Some(Triple { subject, predicate, value })).unwrap();
        Submission { statement, is_single, on_contradiction: OnContradiction::Supersede, ..submission("x") }
    };
    for (predicate, is_single) in [("port", true), ("label", false)] {
        let known = base.base.submit(with(is_single, predicate, "80")).await.unwrap().fact;
        let run = Source { run: Some("run".to_owned()), turn: Some(1), ..source("ann") };
        let keyed = Submission { key: Some(predicate.to_owned()), source: run, ..with(is_single, predicate, "81") };
        for other in [with(is_single, predicate, "81"), keyed] {
            let error = base.base.submit(other).await.unwrap_err();
            let KnowledgeError::OtherParts { known: found, is_contradiction } = &error else { panic!("{error}") };
            assert_eq!((found.fact, *is_contradiction), (known.id, is_single));
            assert!(found.reason.contains("\"80\"") && error.to_string().contains("same words"), "{error}");
        }
        applied(&base, ChangeKind::Invalidate, known.id).await;
        base.base.submit(with(is_single, predicate, "81")).await.unwrap_err();
        let now = base.base.fact(known.id).await.unwrap();
        assert_eq!((now.state, now.sources.len()), (FactState::Invalid, 1));
        // The words alone are the fact.
        let words = base.submit(&format!("the {predicate} is 80")).await;
        assert_eq!((words.fact.id, words.fact.state, words.lacks_parts), (known.id, FactState::Current, false));
    }
}

#[tokio::test]
async fn parts_of_a_fact_that_was_known_without_them_are_not_kept_and_that_is_reported() {
    let base = Base::new();
    assert!(!base.submit("gate opens at nine").await.lacks_parts);
    let again = base.base.submit(single("gate", "opens at", "nine")).await.unwrap();
    assert!(again.lacks_parts && again.fact.triple.is_none() && again.fact.sources.len() == 2, "{again:?}");
}

#[tokio::test]
async fn a_contradiction_is_reported_and_disputed_until_a_person_accepts_one() {
    let base = Base::new();
    let nine = base.base.submit(single("gate", "opens at", "nine")).await.unwrap().fact;
    let ten = base.base.submit(single("gate", "opens at", "ten")).await.unwrap();
    assert_eq!(ten.fact.state, FactState::Disputed);
    assert_eq!(ten.contradictions.iter().map(|found| found.fact).collect::<Vec<_>>(), [nine.id]);
    assert!(ten.contradictions[0].reason.contains("one value at a time"), "{:?}", ten.contradictions);
    assert_eq!(base.base.fact(nine.id).await.unwrap().state, FactState::Current);
    applied(&base, ChangeKind::Accept, ten.fact.id).await;
    assert_eq!(base.base.fact(nine.id).await.unwrap().state, FactState::Invalid);
    assert_eq!(base.base.fact(ten.fact.id).await.unwrap().state, FactState::Current);
    let log = base.base.log(nine.id).await.unwrap();
    let changes: Vec<&str> = log.iter().map(|revision| revision.change.name()).collect();
    assert_eq!(changes, ["submitted", "superseded"]);
    assert!(log[1].reason.contains(&ten.fact.id.to_string()), "{log:?}");
}

#[tokio::test]
async fn a_contradiction_can_be_refused_or_take_the_place_of_what_it_contradicts() {
    let base = Base::new();
    let nine = base.base.submit(single("gate", "opens at", "nine")).await.unwrap().fact;
    let refused = Submission { on_contradiction: OnContradiction::Refuse, ..single("gate", "opens at", "ten") };
    let error = base.base.submit(refused).await.unwrap_err();
    assert!(matches!(error, KnowledgeError::Contradicts(_)), "{error}");
    let newer = Submission { on_contradiction: OnContradiction::Supersede, ..single("gate", "opens at", "ten") };
    let ten = base.base.submit(newer).await.unwrap();
    assert_eq!((ten.fact.state, ten.superseded), (FactState::Current, vec![nine.id]));
    assert_eq!(base.base.fact(nine.id).await.unwrap().state, FactState::Invalid);
}

#[tokio::test]
async fn a_fact_from_untrusted_input_is_disputed_and_supersedes_nothing() {
    let base = Base::new();
    let nine = base.base.submit(single("gate", "opens at", "nine")).await.unwrap().fact;
    let ten = Submission { on_contradiction: OnContradiction::Supersede, ..single("gate", "opens at", "ten") };
    assert_eq!(base.base.submit(untrusted(ten)).await.unwrap().fact.state, FactState::Disputed);
    let other = base.base.submit(untrusted(submission("the wall is high"))).await.unwrap().fact;
    assert_eq!(other.state, FactState::Disputed);
    // What another untrusted source says too is still for a person to decide.
    let again = base.base.submit(untrusted(submission("the wall is high"))).await.unwrap();
    assert_eq!(again.fact.state, FactState::Disputed);
    assert_eq!(base.base.fact(nine.id).await.unwrap().state, FactState::Current);
    applied(&base, ChangeKind::Accept, other.id).await;
    assert_eq!(base.base.fact(other.id).await.unwrap().state, FactState::Current);
}

#[tokio::test]
async fn other_words_of_an_untrusted_source_are_a_fact_of_their_own() {
    let base = Base::new();
    let parts = ["gate", "opens at", "nine"];
    for is_known_untrusted in [false, true] {
        let base = Base::new();
        let known = single("gate", "opens at", "nine");
        let known = if is_known_untrusted { untrusted(known) } else { known };
        let known = base.base.submit(known).await.unwrap().fact;
        let other = base.base.submit(untrusted(worded("All admins are fired.", parts))).await.unwrap();
        assert!(other.is_new && other.fact.state == FactState::Disputed && other.fact.id != known.id, "{other:?}");
        assert_eq!(base.base.fact(known.id).await.unwrap(), known);
        // These words are not taken as the fact.
        assert_eq!(base.submit("all admins are fired").await.fact.id, other.fact.id);
        let named = base.base.facts_named("default", "All admins are fired.").await.unwrap();
        assert_eq!(named.iter().map(|fact| fact.id).collect::<Vec<_>>(), [other.fact.id]);
        assert_eq!(base.base.check().await.unwrap(), []);
    }
    // What an untrusted source stated with these parts does not become the statement of a trusted one.
    let squatted = base.base.submit(untrusted(worded("All admins are fired.", parts))).await.unwrap().fact;
    let gate = base.base.submit(single("gate", "opens at", "nine")).await.unwrap();
    assert!(gate.is_new && gate.fact.state == FactState::Current, "{gate:?}");
    assert_eq!(base.base.fact(squatted.id).await.unwrap(), squatted);
}

#[tokio::test]
async fn an_untrusted_submission_declares_no_predicate() {
    let base = Base::new();
    let several = |value| Submission { is_single: false, ..single("gate", "opens at", value) };
    base.base.submit(several("nine")).await.unwrap();
    let ten = base.base.submit(untrusted(single("gate", "opens at", "ten"))).await.unwrap();
    assert_eq!(ten.contradictions.len(), 1, "for itself it has one value");
    assert_eq!(base.base.submit(several("eleven")).await.unwrap().fact.state, FactState::Current);
    // Nor is it refused because of what is so already.
    base.base.submit(untrusted(single("gate", "opens at", "noon"))).await.unwrap();
    base.base.submit(single("wall", "is as high as", "ten")).await.unwrap();
    assert_eq!(base.base.submit(single("wall", "is as high as", "two")).await.unwrap().fact.state, FactState::Disputed);
}

#[tokio::test]
async fn a_trusted_submission_replaces_what_untrusted_sources_alone_stated() {
    let base = Base::new();
    base.base.submit(single("wall", "is", "low")).await.unwrap();
    let invented = ["wall", "is", "high"];
    let words = "The gate opens at nine";
    for (with_parts, invalidated) in [(true, false), (false, false), (true, true)] {
        let words = format!("{words} of {with_parts} {invalidated}");
        let squatted = base.base.submit(untrusted(worded(&words, invented))).await.unwrap();
        assert_eq!(squatted.contradictions.len(), 1);
        if invalidated {
            applied(&base, ChangeKind::Invalidate, squatted.fact.id).await;
        }
        base.clock.set(2_000);
        let words = format!("{words}.");
        let gate = format!("gate {invalidated}");
        let (stated, parts) = match with_parts {
            true => (worded(&words, [&gate, "opens at", "nine"]), Some(gate.clone())),
            false => (submission(&words), None),
        };
        let stated = base.base.submit(stated).await.unwrap();
        assert!(!stated.is_new && !stated.lacks_parts && stated.contradictions.is_empty(), "{stated:?}");
        assert_eq!((stated.fact.id, stated.fact.state), (squatted.fact.id, FactState::Current));
        assert_eq!((&stated.fact.statement, stated.fact.triple.map(|triple| triple.subject)), (&words, parts));
        let sources = stated.fact.sources.iter().map(|source| (&*source.by, source.is_untrusted));
        assert_eq!(sources.collect::<Vec<_>>(), [("mallory", true), ("ann", false)]);
        let log = base.base.log(stated.fact.id).await.unwrap();
        let last = log.last().unwrap();
        assert_eq!((last.change.name(), last.state, &*last.by), ("submitted again", FactState::Current, "ann"));
        assert!(last.reason.contains("untrusted sources alone"), "{last:?}");
        // Nothing is left of the invented parts: not in the graph, and not in what the fact contradicts.
        let shown = base.base.preview(&change(ChangeKind::Invalidate, stated.fact.id)).await.unwrap();
        let edges: Vec<_> = shown.deleted_edges.iter().map(|edge| (&*edge.source, &*edge.target)).collect();
        assert_eq!(edges, if with_parts { vec![(&*gate, "nine")] } else { Vec::new() });
        assert_eq!(base.base.check().await.unwrap(), []);
        // From here on it is known as any other fact.
        let again = base.base.submit(untrusted(worded(&words, invented))).await;
        assert_eq!(again.is_ok_and(|again| again.lacks_parts), !with_parts);
    }
    let (export, _) = base.base.export(Vec::new()).await.unwrap();
    let other = Base::new();
    other.base.import(std::io::Cursor::new(export.clone())).await.unwrap();
    assert_eq!(other.base.export(Vec::new()).await.unwrap().0, export);
    assert_eq!(other.base.check().await.unwrap(), []);
}

#[tokio::test]
async fn a_trusted_submission_in_place_of_untrusted_sources_is_compared_as_any_other() {
    let base = Base::new();
    let ten = base.base.submit(single("gate", "opens at", "ten")).await.unwrap().fact;
    let nine = single("gate", "opens at", "nine");
    let squatted = base.base.submit(untrusted(submission(nine.statement.text()))).await.unwrap().fact;
    base.clock.set(2_000);
    let refused = Submission { on_contradiction: OnContradiction::Refuse, ..nine.clone() };
    assert!(matches!(base.base.submit(refused).await.unwrap_err(), KnowledgeError::Contradicts(_)));
    let disputed = base.base.submit(nine.clone()).await.unwrap();
    assert_eq!((disputed.fact.state, disputed.fact.valid_from), (FactState::Disputed, squatted.valid_from));
    assert_eq!(disputed.contradictions.iter().map(|found| found.fact).collect::<Vec<_>>(), [ten.id]);
    assert_eq!(base.base.submit(nine).await.unwrap().fact.state, FactState::Disputed, "a person decides");
    // What a person has accepted is known, whatever its sources.
    let invented = base.base.submit(untrusted(worded("The wall is high.", ["wall", "is", "high"]))).await.unwrap();
    applied(&base, ChangeKind::Accept, invented.fact.id).await;
    base.base.submit(worded("The wall is high.", ["wall", "is", "low"])).await.unwrap_err();
}

#[tokio::test]
async fn sources_that_are_untrusted_do_not_raise_the_confidence() {
    let base = Base::new();
    let confidence = async || base.base.read_facts(ReadFacts::new("default", "gate open")).await.unwrap().confidence;
    base.submit("the gate is open").await;
    let before = confidence().await;
    for by in ["mallory", "eve"] {
        let untrusted = Source { is_untrusted: true, ..source(by) };
        base.base.submit(Submission { source: untrusted, ..submission("the gate is open") }).await.unwrap();
    }
    assert_eq!(confidence().await, before);
    base.base.submit(Submission { source: source("bob"), ..submission("the gate is open") }).await.unwrap();
    assert!(confidence().await > before);
}

#[tokio::test]
async fn an_invalidation_does_what_was_shown_or_nothing() {
    let base = Base::new();
    let fact = base.base.submit(single("gate", "opens at", "nine")).await.unwrap().fact;
    let request = change(ChangeKind::Invalidate, fact.id);
    let shown = base.base.preview(&request).await.unwrap();
    assert_eq!(shown.facts.len(), 1);
    let edges: Vec<String> =
        shown.deleted_edges.iter().map(|edge| format!("{} {} {}", edge.source, edge.relation, edge.target)).collect();
    assert_eq!(edges, ["gate links nine"]);
    base.base.submit(Submission { source: source("bob"), ..single("gate", "opens at", "nine") }).await.unwrap();
    let error = base.base.apply(request.clone(), &shown.hash, None).await.unwrap_err();
    assert!(matches!(error, KnowledgeError::PreviewChanged { .. }), "{error}");
    assert_eq!(base.base.fact(fact.id).await.unwrap().state, FactState::Current);
    let again = base.base.preview(&request).await.unwrap();
    base.base.apply(request.clone(), &again.hash, None).await.unwrap();
    assert_eq!(base.base.fact(fact.id).await.unwrap().state, FactState::Invalid);
    let error = base.base.preview(&request).await.unwrap_err();
    assert!(matches!(error, KnowledgeError::Unchanged { .. }), "{error}");
}

#[tokio::test]
async fn an_invalid_fact_is_not_accepted_and_is_compared_when_it_is_submitted_again() {
    let base = Base::new();
    let nine = base.base.submit(single("gate", "opens at", "nine")).await.unwrap().fact;
    applied(&base, ChangeKind::Invalidate, nine.id).await;
    // Was not compared with it, so that both would hold.
    let ten = base.base.submit(single("gate", "opens at", "ten")).await.unwrap().fact;
    assert_eq!(ten.state, FactState::Current);
    let error = base.base.preview(&change(ChangeKind::Accept, nine.id)).await.unwrap_err();
    assert!(matches!(error, KnowledgeError::NotDisputed { id } if id == nine.id), "{error}");
    assert!(error.to_string().contains("submit its statement again"), "{error}");
    assert_eq!(base.base.fact(nine.id).await.unwrap().state, FactState::Invalid);
    let again = base.base.submit(single("gate", "opens at", "nine")).await.unwrap();
    assert_eq!((again.fact.id, again.fact.state), (nine.id, FactState::Disputed));
    applied(&base, ChangeKind::Accept, nine.id).await;
    assert_eq!(base.base.fact(ten.id).await.unwrap().state, FactState::Invalid);
}

#[tokio::test]
async fn an_edge_goes_with_the_last_fact_that_supports_it() {
    let base = Base::new();
    let one = base.base.submit(single("gate", "opens at", "nine")).await.unwrap().fact;
    let mut other = single("gate", "closes after", "nine");
    other.is_single = false;
    let other = base.base.submit(other).await.unwrap().fact;
    let shown = base.base.preview(&change(ChangeKind::Invalidate, one.id)).await.unwrap();
    assert_eq!(shown.deleted_edges, []);
    applied(&base, ChangeKind::Invalidate, one.id).await;
    let shown = base.base.preview(&change(ChangeKind::Invalidate, other.id)).await.unwrap();
    assert_eq!(shown.deleted_edges.len(), 1);
}

#[tokio::test]
async fn a_change_that_is_asked_for_again_by_its_key_is_made_once() {
    let base = Base::new();
    let keyed = || Submission { key: Some("run 7, turn 2".to_owned()), ..submission("the gate is open") };
    let first = base.base.submit(keyed()).await.unwrap();
    let again = base.base.submit(keyed()).await.unwrap();
    assert_eq!(again, first);
    assert_eq!(base.base.fact(first.fact.id).await.unwrap().sources.len(), 1);
    let request = change(ChangeKind::Invalidate, first.fact.id);
    let hash = base.base.preview(&request).await.unwrap().hash;
    let key = Some("run 7, turn 3".to_owned());
    let applied = base.base.apply(request.clone(), &hash, key.clone()).await.unwrap();
    assert_eq!(base.base.apply(request, &hash, key).await.unwrap(), applied);
}

#[tokio::test]
async fn a_fact_that_was_invalid_holds_again_once_it_is_submitted_again() {
    let base = Base::new();
    let fact = base.submit("the gate is open").await.fact;
    applied(&base, ChangeKind::Invalidate, fact.id).await;
    let again = base.submit("The gate is open.").await;
    assert_eq!((again.fact.id, again.fact.state, again.fact.revision), (fact.id, FactState::Current, 3));
    let found = base.base.read_facts(ReadFacts::new("default", "gate open")).await.unwrap();
    assert_eq!(found.results.len(), 1);
}

#[tokio::test]
async fn a_clock_that_is_set_back_leaves_times_in_order() {
    let base = Base::new();
    base.clock.set(5_000);
    let fact = base.submit("the gate is open").await.fact;
    base.write("a.md", &[("One", "first")]).await;
    base.clock.set(3_000);
    base.submit("the gate is open").await;
    applied(&base, ChangeKind::Invalidate, fact.id).await;
    base.write("a.md", &[("Two", "second")]).await;
    assert_eq!(base.base.check().await.unwrap(), []);
    let again = base.submit("the gate is open").await.fact;
    let times: Vec<u64> = base.base.log(fact.id).await.unwrap().iter().map(|change| change.at.as_millis()).collect();
    assert_eq!((times, again.valid_from.as_millis()), (vec![5_000; 4], 5_000));
    assert_eq!(base.base.check().await.unwrap(), []);
}

#[tokio::test]
async fn a_predicate_whose_current_facts_have_several_values_is_not_declared_to_have_one() {
    let base = Base::new();
    let several = |subject: &str, value: &str| Submission { is_single: false, ..single(subject, "opens at", value) };
    let nine = base.base.submit(several("gate", "nine")).await.unwrap().fact;
    let ten = base.base.submit(several("gate", "ten")).await.unwrap().fact;
    base.base.submit(several("door", "one")).await.unwrap();
    for error in [
        base.base.declare_predicate("default", "Opens at", true).await.unwrap_err(),
        base.base.submit(single("wall", "opens at", "two")).await.unwrap_err(),
    ] {
        let KnowledgeError::SeveralValues { facts, .. } = &error else { panic!("{error}") };
        assert_eq!(*facts, [nine.id, ten.id]);
        assert!(error.to_string().contains("invalidate all but one"), "{error}");
    }
    applied(&base, ChangeKind::Invalidate, ten.id).await;
    base.base.declare_predicate("default", "Opens at", true).await.unwrap();
    assert_eq!(base.base.check().await.unwrap(), []);
}

#[tokio::test]
async fn what_is_accepted_takes_the_place_of_values_that_were_submitted_before_its_predicate_had_one() {
    let base = Base::new();
    let several = |value: &str| Submission { is_single: false, ..single("gate", "opens at", value) };
    let untrusted = Source { is_untrusted: true, ..source("mallory") };
    let ten = base.base.submit(Submission { source: untrusted, ..several("ten") }).await.unwrap().fact;
    let nine = base.base.submit(several("nine")).await.unwrap().fact;
    base.base.declare_predicate("default", "opens at", true).await.unwrap();
    applied(&base, ChangeKind::Accept, ten.id).await;
    let states = [base.base.fact(ten.id).await.unwrap().state, base.base.fact(nine.id).await.unwrap().state];
    assert_eq!(states, [FactState::Current, FactState::Invalid]);
    assert_eq!(base.base.check().await.unwrap(), []);
}

#[tokio::test]
async fn a_thousand_submissions_at_once_lose_nothing() {
    let base = Base::new();
    let all = (0..1_000).map(|number| {
        let base = base.base.clone();
        // Each statement is submitted twice.
        tokio::spawn(async move { base.submit(submission(&format!("door {} is closed", number / 2))).await })
    });
    let mut new = 0;
    for submitted in futures::future::join_all(all).await {
        new += usize::from(submitted.unwrap().unwrap().is_new);
    }
    assert_eq!(new, 500);
    for number in 0..500 {
        let fact = base.submit(&format!("door {number} is closed")).await.fact;
        assert_eq!(fact.sources.len(), 3, "{number}");
    }
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_the_base_was_opened_again() {
    let base = Base::new();
    let fact = base.submit("the gate is open").await.fact;
    let Base { base: old, folder, .. } = base;
    let path = old.path().to_owned();
    old.close().await;
    let again = KnowledgeBase::open(&path, &Env::system()).unwrap();
    assert_eq!(again.fact(fact.id).await.unwrap(), fact);
    drop(folder);
}

#[tokio::test]
async fn facts_of_another_namespace_are_other_facts() {
    let base = Base::new();
    let one = base.submit("the gate is open").await.fact;
    let other = Submission { namespace: "secret".to_owned(), ..submission("the gate is open") };
    let other = base.base.submit(other).await.unwrap().fact;
    assert_ne!(one.id, other.id);
    let found = base.base.read_facts(ReadFacts::new("default", "gate")).await.unwrap();
    assert_eq!(found.results.iter().map(|result| &*result.cite).collect::<Vec<_>>(), [one.id.to_string()]);
}

#[tokio::test]
async fn a_trusted_source_decides_what_an_untrusted_one_stated_again_after_its_end() {
    let base = Base::new();
    let fact = base.submit("The gate is green.").await.fact.id;
    let nine = base.base.submit(single("gate", "opens at", "nine")).await.unwrap().fact.id;
    base.clock.set(2_000);
    applied(&base, ChangeKind::Invalidate, fact).await;
    applied(&base, ChangeKind::Invalidate, nine).await;
    base.base.submit(single("gate", "opens at", "ten")).await.unwrap();
    base.clock.set(3_000);
    for again in [submission("The gate is green."), single("gate", "opens at", "nine")] {
        let again = base.base.submit(untrusted(again)).await.unwrap().fact;
        assert_eq!(again.state, FactState::Disputed);
    }
    let still = base.base.submit(untrusted(submission("The gate is green."))).await.unwrap().fact;
    assert_eq!(still.state, FactState::Disputed);
    base.clock.set(4_000);
    let stated = base.submit("the gate is green").await;
    assert_eq!(
        (stated.fact.id, stated.fact.state, &*stated.fact.statement),
        (fact, FactState::Current, "The gate is green.")
    );
    let log = base.base.log(fact).await.unwrap();
    let last = log.last().unwrap();
    assert_eq!((last.change.name(), last.state), ("submitted again", FactState::Current));
    // What contradicts a current fact is for a person to decide, whoever states it, and however often.
    for _ in 0..2 {
        let stated = base.base.submit(single("gate", "opens at", "nine")).await.unwrap();
        assert_eq!((stated.fact.id, stated.fact.state, stated.contradictions.len()), (nine, FactState::Disputed, 1));
    }
    assert_eq!(base.base.check().await.unwrap(), []);
}

#[tokio::test]
async fn what_a_model_found_about_the_words_of_a_fact_is_kept_when_a_trusted_source_states_them() {
    let base = Base::new();
    let gate = base.submit("The gate is open.").await.fact.id;
    base.base.submit(single("wall", "is", "low")).await.unwrap();
    // A reason is kept up to its bound.
    let judged = vec![Contradiction { fact: gate, reason: format!("it cannot be both: {}", "x".repeat(100_000)) }];
    let shut = Submission { judged, ..worded("The gate is shut.", ["wall", "is", "high"]) };
    let shut = base.base.submit(untrusted(shut)).await.unwrap();
    assert_eq!(shut.contradictions.len(), 2);
    base.clock.set(2_000);
    let stated = base.submit("the gate is shut").await;
    assert_eq!((stated.fact.id, stated.fact.state), (shut.fact.id, FactState::Disputed));
    let [found] = &stated.contradictions[..] else { panic!("{stated:?}") };
    assert!(found.fact == gate && found.reason.starts_with("it cannot be both"), "{found:?}");
    let shown = base.base.preview(&change(ChangeKind::Accept, shut.fact.id)).await.unwrap();
    assert_eq!(shown.facts.iter().map(|changed| changed.fact).collect::<Vec<_>>(), [shut.fact.id, gate]);
    assert_eq!(base.base.check().await.unwrap(), []);
    let (export, _) = base.base.export(Vec::new()).await.unwrap();
    Base::new().base.import(std::io::Cursor::new(export)).await.unwrap();
}
