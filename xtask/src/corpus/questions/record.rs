//! The form of the committed questions: one JSON object a line.

use serde::{Deserialize, Serialize};

/// What a question was made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QuestionKind {
    /// The documentation of an item; its page is the answer.
    Summary,
    /// A message that code prints; the documentation of its error or function is the answer.
    Error,
    /// An entry of a changelog; the section of its version is the answer.
    Changelog,
    /// A condition of a section `Errors` or `Panics`, which is the answer.
    Section,
}

impl QuestionKind {
    /// All kinds, in the order of the file.
    pub const ALL: [Self; 4] = [Self::Summary, Self::Error, Self::Changelog, Self::Section];

    /// Its name in the file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Summary => "summary",
            Self::Error => "error",
            Self::Changelog => "changelog",
            Self::Section => "section",
        }
    }
}

/// A section that answers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Answer {
    /// The path of its document below the folder of the corpus.
    pub document: String,
    /// Its headings from the outermost, joined with ` > `.
    pub section: String,
}

/// A question and the sections that answer it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// Its kind and a part of its hash.
    pub id: String,
    /// What it was made of.
    pub kind: QuestionKind,
    /// What is asked.
    pub question: String,
    /// Each of them is right.
    pub answers: Vec<Answer>,
    /// Whether it is measured once, and not while the search is worked on.
    pub held_back: bool,
    /// Whether an answer is in the part of the corpus that CI uses.
    pub ci: bool,
}

/// Reads questions.
///
/// # Errors
/// With the number of the line that is no question.
pub fn read(text: &str) -> Result<Vec<Question>, String> {
    let question = |(line, text): (usize, &str)| {
        serde_json::from_str(text).map_err(|error| format!("line {} is no question: {error}", line + 1))
    };
    text.lines().enumerate().map(question).collect()
}

/// Writes questions.
#[must_use]
pub fn write(questions: &[Question]) -> String {
    let line = |question| serde_json::to_string(question).expect("text and flags are JSON") + "\n";
    questions.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_that_are_written_are_read_the_same() {
        let answer = Answer { document: "a/b.md".to_owned(), section: "a::b > \"C\"".to_owned() };
        let question = Question {
            id: "error-0".to_owned(),
            kind: QuestionKind::Error,
            question: "what?\n".to_owned(),
            answers: vec![answer],
            held_back: true,
            ci: false,
        };
        let text = write(&[question.clone(), question.clone()]);
        assert_eq!(read(&text), Ok(vec![question.clone(), question]));
        assert!(read(&(text + "{}\n")).unwrap_err().starts_with("line 3 is no question"));
    }

    #[test]
    fn the_name_of_a_kind_is_the_one_in_the_file() {
        for kind in QuestionKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
    }
}
