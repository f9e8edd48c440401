//! What a query finds: facts and passages, ranked, with what explains each rank.
//!
//! # Rows
//!
//! BM25 of the index takes a microsecond for each row that has one of the words, so it is computed for a bounded number of rows. The eight
//! rarest words of the query that any row has are asked for. Words that only join others ("how", "is") are not among them,
//! unless the query has no others.
//!
//! 1. The rarest words that together have 2,000 rows at most (shallow; a single one 4,000) or 10,000 (deep): the index ranks every row that
//!    has one of them. The two rarest of the more common words add their weight to those of these rows that have them.
//! 2. If there are more common words, and the first step finds no row of the namespace and time: the newest rows that have all of the more
//!    common words, then those that have all but the most common one, and so on, until there are enough or 20,000 rows have been looked up.
//!
//! A deep query also asks for 30 rows of each of these, those whose words weigh most together, of the 300 newest rows for each word. Both are of
//! now, so a query of the past does not ask for them:
//!
//! - Rows that have a name to which a word is expanded: a word of three letters or more finds up to four names of entities of the graph that
//!   begin with it ("auth" finds "authentication"), each in 2,000 rows at most and in half as many as the word at least.
//! - If the query has a word of failures ("invalid", "exceeded", "not"): rows below headings such as "Errors", "Panics" or `ParseError` that have
//!   a word of the query.
//!
//! How many rows have a word is counted in all namespaces. Counts of 256 rows or more are remembered until the highest number of a
//! row has changed by a sixteenth, smaller ones until it has changed.
//!
//! # Scores
//!
//! The best 100 of these rows are read, or as many as results are asked for if that is more. Each gets the score `text / best + graph`, where
//! `best` is the best `text` of the query's rows. Results show it as a share of the first one's.
//!
//! `text = (bm25 + pairs) * covered`:
//!
//! - `bm25` is BM25 of title and body as one text. A word weighs `ln(1 + (N - n + 0.5) / (n + 0.5))`, where n of N rows have it. Words that
//!   only join others count in rows that are found.
//! - `pairs`: two words that follow each other in the query and in the row add the weight of the lighter one.
//! - `covered` is the share of the query's words that the row has, by weight. One word of many is worth little, however short the row is.
//!
//! In a deep query a row that has a name in place of the word that begins it has half of that word, and a row below a heading of failures
//! covers the query's words of failures. The text of a fact counts 1.25 times if it is current: somebody stated it, and nothing
//! disputes it.
//!
//! `graph` is what deep queries add, as a share of the best text; `Why::graph` names the reasons:
//!
//! - A row that defines (0.4) or mentions (0.05) what the query names, times the share of the query that the name is, and divided by
//!   `1 + ln(1 + r)` if r rows do.
//! - A query with a word of failures adds half of the text's score to rows below headings of failures, and 0.3 of the score of each of up to five documents among the best ten results to such rows of the document.
//! - The first row of a document to which one of the best five results links gets 0.05.
//!
//! # Confidence
//!
//! [`confidence`] is a function of the best result's coverage (the share of the query's words that it has, by weight, without those that
//! only join others), of how far its score is above the next one's, and of the number of its trusted sources.

mod candidates;
mod excerpt;
mod expansion;
mod failures;
mod found;
mod fulltext;
mod graph;
mod matching;
mod retrieving;
mod score;
mod stem;
mod terms;
mod weights;

pub use excerpt::excerpt;
pub use found::{
    Checkpoint, Depth, Found, Grounded, MAX_LIMIT, MAX_QUERY, ReadFacts, Retrieved, Status, USUAL_LIMIT, Why,
};
pub(crate) use retrieving::grounded;
pub use retrieving::{Retriever, StagedText};
pub use score::{Confidence, confidence};
