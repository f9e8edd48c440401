//! The inbox at a terminal: a person goes through it, and decides about one item after the other.

use serde_json::{Value, json};

use callboard::messages::visible;
use callboard_server::inbox::ItemKind;
use callboard_text::quoted;

use crate::page::{Failure, Page, count, folded};
use crate::person::{Person, at_the_terminal};
use crate::service::boards::{ask_board, ask_service, encoded};
use crate::stores::Stores;

use super::{Listed, Place, decide, done, problem_of, summary};

/// What a person says about an item.
#[derive(Debug, PartialEq)]
enum Said {
    Decision(Value),
    Skip,
    Quit,
}

/// Goes through the items with the person at the terminal.
pub(super) async fn one_by_one(items: &[Listed], stores: &Stores, is_cut: bool, notes: &str) -> Result<Page, Failure> {
    // It is folded already.
    let (mut left, mut begin) = (0, folded(&format!("{}\n", summary(items, is_cut))));
    for (place, listed) in items.iter().enumerate() {
        let card = card(listed, stores).await.unwrap_or_default();
        let shown = format!("{begin}\n{}{}", listed.shown(stores), folded(&card));
        let is_not_theirs = listed.item["may_not"].is_string();
        if is_not_theirs || matches!(listed.place, Place::Left(_)) || listed.responses().is_empty() {
            begin = shown;
            left += 1;
            continue;
        }
        begin = String::new();
        let said = at_the_terminal(None, |person| ask(person, listed, &shown));
        match said.unwrap_or(Said::Quit) {
            Said::Skip => left += 1,
            Said::Quit => {
                left += items.len() - place;
                break;
            }
            Said::Decision(decision) => {
                let result = decide(listed, stores, decision.clone()).await?;
                begin = match problem_of(&result) {
                    None => format!("{}\n", done(&decision, &result)),
                    Some(problem) => {
                        left += 1;
                        folded(&format!("refused: {problem}\n"))
                    }
                };
            }
        }
    }
    let end = match left {
        0 => String::new(),
        left => format!("{} left\n", count(left, "item")),
    };
    let page = Page::new(format!("{begin}{end}"), Value::Null);
    Ok(Page { remarks: notes.to_owned(), ..page })
}

/// All of what is to be approved, as its process shows it, and of an edit of a file what changes.
async fn card(listed: &Listed, stores: &Stores) -> Option<String> {
    let path = format!("/v1/inbox/{}", encoded(listed.id()));
    let answer = match &listed.place {
        Place::Server => ask_service(stores, ("GET", &path), None).await,
        Place::Board(store, board) => ask_board(store, board, ("GET", &path), None).await,
        Place::Left(_) => return None,
    };
    let item = answer.ok()?;
    let change = item["difference"].as_str().map(|lines| format!("what changes in the file\n{lines}"));
    let note = item["difference_note"].as_str().map(|note| format!("{}\n", visible(note)));
    Some([item["card"].as_str()?.to_owned(), change.unwrap_or_default(), note.unwrap_or_default()].concat())
}

/// Asks until the answer is one.
fn ask(person: &mut impl Person, listed: &Listed, shown: &str) -> Said {
    let (responses, mut question) = (listed.responses(), shown.to_owned());
    let code = listed.id().strip_prefix("approval:").and_then(|hash| hash.get(..4));
    let names = responses.iter().map(|response| match (*response, code) {
        ("approve", Some(code)) => format!("{code} approves"),
        ("deny", _) => "deny [REASON]".to_owned(),
        ("answer", _) => "“answer” and the text".to_owned(),
        ("overwrite", _) => "overwrite {\"CHANNEL\": VALUE}".to_owned(),
        ("resume", _) => "resume [INPUT]".to_owned(),
        (response, _) => response.to_owned(),
    });
    let prompt = format!("{}, skip, quit: ", names.collect::<Vec<_>>().join(", "));
    loop {
        let Some(line) = person.answers(&format!("{question}{prompt}")) else { return Said::Quit };
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((&line, ""));
        let rest = rest.trim();
        let decision = match (word, rest) {
            ("skip" | "s", "") => return Said::Skip,
            ("", "") => Err("write one of these, or skip".to_owned()),
            ("quit" | "q", "") => return Said::Quit,
            (typed, "") if Some(typed) == code => Ok(json!({ "response": "approve" })),
            ("approve", _) if code.is_some() => Err("type the code, which is of this card alone".to_owned()),
            ("deny", reason) if responses.contains(&"deny") => Ok(json!({ "response": "deny", "reason": reason })),
            ("answer", text) if responses.contains(&"answer") && !text.is_empty() => {
                // An effect that was done is answered with its result.
                let is_outcome = listed.kind() == Some(ItemKind::UnknownOutcome) && text.starts_with('{');
                let value = if is_outcome { crate::values::json(text) } else { Ok(json!(text)) };
                value.map(|value| json!({ "response": "answer", "value": value }))
            }
            ("overwrite", values) if responses.contains(&"overwrite") => {
                crate::values::json(values).map(|values| json!({ "response": "overwrite", "values": values }))
            }
            ("resume", input) if responses.contains(&"resume") && !input.is_empty() => {
                crate::values::json(input).map(|input| json!({ "response": "resume", "input": input }))
            }
            (word @ ("resume" | "restart" | "retry" | "drop" | "read_again"), "") if responses.contains(&word) => {
                Ok(json!({ "response": word }))
            }
            _ => Err(format!("{} is none of these", visible(&quoted(&line)))),
        };
        match decision {
            Ok(decision) => return Said::Decision(decision),
            Err(why) => question = format!("{why}\n"),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::person::Script;

    use super::*;

    fn listed(id: &str, kind: &str, responses: &[&str]) -> Listed {
        let actions = responses.iter().map(|response| json!({ "response": response, "command": "callboard x" }));
        let item = json!({ "id": id, "kind": kind, "what": "x", "actions": actions.collect::<Vec<_>>() });
        Listed { item, place: Place::Server }
    }

    fn said(lines: &str, listed: &Listed) -> (Said, String) {
        let mut script = Script::new(lines);
        let said = ask(&mut script, listed, "shown\n");
        (said, script.asked)
    }

    #[test]
    fn an_approval_takes_the_code_of_its_card_and_nothing_else() {
        let approval = listed(&format!("approval:a7b3{}", "0".repeat(60)), "approval", &["approve", "deny"]);
        let (decision, asked) = said("approve\ny\na7b4\na7b3", &approval);
        assert_eq!(decision, Said::Decision(json!({ "response": "approve" })));
        assert_eq!(asked.matches("a7b3 approves, deny [REASON], skip, quit: ").count(), 4, "{asked}");
        let (decision, _) = said("deny not now", &approval);
        assert_eq!(decision, Said::Decision(json!({ "response": "deny", "reason": "not now" })));
    }

    #[test]
    fn what_does_not_fit_is_asked_again_and_the_end_of_the_input_decides_nothing() {
        let letter = listed("letter:x/1", "dead_letter", &["retry", "drop"]);
        assert_eq!(said("deny\nretry now\ndrop", &letter).0, Said::Decision(json!({ "response": "drop" })));
        assert_eq!((said("", &letter).0, said("\nskip", &letter).0), (Said::Quit, Said::Skip));
        let node = listed("node:x/1", "node", &["resume"]);
        let (decision, asked) = said("resume {\nresume {\"a\": 1}", &node);
        assert_eq!(decision, Said::Decision(json!({ "response": "resume", "input": { "a": 1 } })));
        assert!(asked.contains("resume [INPUT], skip, quit: "), "{asked}");
        let conflict = listed("conflict:x", "conflict", &["overwrite", "drop"]);
        let (decision, asked) = said("overwrite {\noverwrite {\"a\": 1}", &conflict);
        assert_eq!(decision, Said::Decision(json!({ "response": "overwrite", "values": { "a": 1 } })));
        assert_eq!(asked.lines().count(), 3, "{asked}");
    }
}
