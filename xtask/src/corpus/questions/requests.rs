//! What somebody asks for whom an item is right, in the words of its summary.

/// Beginnings of summaries, and what one who looks for the item would ask for. The first that fits is taken.
const BEGINNINGS: [(&str, &str); 33] = [
    ("returns true if ", "check whether "),
    ("returns whether ", "check whether "),
    ("returns the number of ", "count the "),
    ("returns an iterator over ", "loop over "),
    ("returns an iterator that ", "find something to loop with that "),
    ("returns a mutable reference to ", "change "),
    ("returns a reference to ", "borrow "),
    ("returns a shared reference to ", "borrow "),
    ("returns a new ", "get a fresh "),
    ("returns a ", "obtain a "),
    ("returns an ", "obtain an "),
    ("returns the ", "find out the "),
    ("gets a reference to ", "borrow "),
    ("gets a mutable reference to ", "change "),
    ("gets the ", "find out the "),
    ("get the ", "find out the "),
    ("creates a new ", "make a fresh "),
    ("create a new ", "make a fresh "),
    ("creates an ", "make an "),
    ("creates a ", "make a "),
    ("constructs a new ", "make a fresh "),
    ("constructs a ", "make a "),
    ("checks if ", "test whether "),
    ("checks whether ", "test whether "),
    ("determines whether ", "find out whether "),
    ("attempts to ", "try to "),
    ("tries to ", "try to "),
    ("sets whether ", "decide whether "),
    ("sets the ", "choose the "),
    ("set the ", "choose the "),
    ("removes all ", "get rid of all "),
    ("removes the ", "get rid of the "),
    ("converts ", "turn "),
];

/// Verbs in the form in which documentation begins with them, and in the form of a request.
const VERBS: [(&str, &str); 86] = [
    ("adds", "add"),
    ("advances", "move forward"),
    ("allocates", "reserve"),
    ("allows", "allow"),
    ("appends", "append"),
    ("applies", "apply"),
    ("asserts", "assert"),
    ("awaits", "wait for"),
    ("binds", "bind"),
    ("blocks", "block"),
    ("borrows", "borrow"),
    ("builds", "build"),
    ("calculates", "work out"),
    ("calls", "run"),
    ("cancels", "stop"),
    ("casts", "cast"),
    ("changes", "change"),
    ("checks", "test"),
    ("clears", "empty"),
    ("clones", "copy"),
    ("closes", "close"),
    ("collects", "gather"),
    ("combines", "combine"),
    ("compares", "compare"),
    ("computes", "work out"),
    ("configures", "configure"),
    ("connects", "connect"),
    ("consumes", "use up"),
    ("copies", "copy"),
    ("counts", "count"),
    ("creates", "make"),
    ("decodes", "decode"),
    ("decreases", "lower"),
    ("deletes", "delete"),
    ("determines", "find out"),
    ("disables", "turn off"),
    ("divides", "divide"),
    ("drains", "drain"),
    ("drops", "drop"),
    ("enables", "turn on"),
    ("encodes", "encode"),
    ("ensures", "ensure"),
    ("executes", "run"),
    ("extends", "extend"),
    ("extracts", "pull out"),
    ("fills", "fill"),
    ("filters", "filter"),
    ("finds", "find"),
    ("flushes", "flush"),
    ("folds", "fold"),
    ("forces", "force"),
    ("formats", "format"),
    ("generates", "generate"),
    ("increases", "raise"),
    ("initializes", "set up"),
    ("inserts", "insert"),
    ("installs", "install"),
    ("joins", "join"),
    ("limits", "limit"),
    ("loads", "load"),
    ("makes", "make"),
    ("maps", "map"),
    ("marks", "mark"),
    ("merges", "merge"),
    ("moves", "move"),
    ("obtains", "obtain"),
    ("opens", "open"),
    ("parses", "parse"),
    ("performs", "do"),
    ("prevents", "prevent"),
    ("pushes", "push"),
    ("reads", "read"),
    ("registers", "register"),
    ("removes", "get rid of"),
    ("replaces", "swap out"),
    ("reserves", "reserve"),
    ("resets", "reset"),
    ("runs", "run"),
    ("searches", "search"),
    ("sends", "send"),
    ("skips", "skip"),
    ("sorts", "sort"),
    ("splits", "split"),
    ("spawns", "start"),
    ("waits", "wait"),
    ("writes", "write"),
];

/// What somebody wants to do for whom an item with this summary is right: without a subject, as after `how do I`.
pub(crate) fn request(summary: &str) -> Option<String> {
    let lower = summary.to_lowercase();
    // `Takes one and returns`: the second verb would keep its form.
    let words: Vec<&str> = lower.split(' ').collect();
    let is_third_person =
        |word: &str| word == "returns" || word == "yields" || VERBS.iter().any(|(known, _)| *known == word);
    let has_second = words.iter().enumerate().any(|(place, word)| {
        ["and", "or", "then"].contains(word) && words.get(place + 1).is_some_and(|next| is_third_person(next))
    });
    if has_second {
        return None;
    }
    if let Some((begin, instead)) = BEGINNINGS.iter().find(|(begin, _)| lower.starts_with(begin)) {
        return Some(format!("{instead}{}", summary.get(begin.len()..)?));
    }
    let (verb, rest) = summary.split_once(' ')?;
    let verb = verb.to_lowercase();
    // `Do not`, and `Inserts or updates` where the second verb is none of those known.
    if ["or ", "and ", "not "].iter().any(|word| rest.starts_with(word)) {
        return None;
    }
    let (_, request) = VERBS.iter().find(|(known, request)| *known == verb || *request == verb)?;
    Some(format!("{request} {rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_becomes_a_request() {
        for (summary, expected) in [
            ("Returns the number of bytes", Some("count the bytes")),
            ("Spawns a thread", Some("start a thread")),
            ("Run a future", Some("run a future")),
            ("Pops one and returns it", None),
            ("Inserts or changes it", None),
            ("Do not stop", None),
            ("A handle", None),
            ("Word", None),
        ] {
            assert_eq!(request(summary).as_deref(), expected, "{summary}");
        }
    }
}
