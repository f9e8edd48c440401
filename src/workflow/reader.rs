//! Workflows from text: TOML and the one-line syntax.

use std::collections::BTreeMap;

use callboard_documents::{Defect, Defects, text_of};

use super::draft::Draft;
use super::written::Workflow;
use super::{line, toml};

impl Workflow {
    /// Reads a workflow from TOML; `origin` is what the text is called in errors, a file's name for example.
    ///
    /// ```
    /// use callboard::workflow::Workflow;
    /// let text = r#"
    /// [workflow]
    /// name = "code-review"
    ///
    /// [[workflow.tasks]]
    /// name = "analyze"
    /// agent = "code-analyzer"
    /// input = "{{source_code}}"
    ///
    /// [[workflow.tasks]]
    /// name = "review"
    /// agent = "code-reviewer"
    /// depends_on = ["analize"]
    /// "#;
    /// let defects = Workflow::from_toml("review.toml", text).unwrap_err().to_string();
    /// assert!(defects.starts_with("review.toml:13:15: no node is named \"analize\"; did you mean \"analyze\"?"), "{defects}");
    /// let workflow = Workflow::from_toml("review.toml", &text.replace("analize", "analyze"))?;
    /// assert_eq!(workflow.inputs().collect::<Vec<_>>(), ["source_code"]);
    /// # Ok::<(), callboard::workflow::Defects>(())
    /// ```
    ///
    /// # Errors
    /// Everything that is wrong with it, each with its place.
    pub fn from_toml(origin: &str, text: &str) -> Result<Self, Defects> {
        Reader::default().toml(origin, text)
    }

    /// Reads a workflow from the one-line syntax.
    ///
    /// ```
    /// use callboard::workflow::Workflow;
    /// let text = r#"analyze(agent="code-analyzer") -> review(agent="code-reviewer")"#;
    /// let workflow = Workflow::from_line("the command line", text)?;
    /// assert_eq!(workflow.plan().cast().len(), 2);
    /// # Ok::<(), callboard::workflow::Defects>(())
    /// ```
    ///
    /// # Errors
    /// Everything that is wrong with it, each with its place.
    pub fn from_line(origin: &str, text: &str) -> Result<Self, Defects> {
        Reader::default().line(origin, text)
    }

    /// The text of the one-line syntax in its usual form.
    ///
    /// ```
    /// use callboard::workflow::Workflow;
    /// assert_eq!(Workflow::formatted("", "a  ->(b|c )->d")?, "a -> (b | c) -> d\n");
    /// # Ok::<(), callboard::workflow::Defects>(())
    /// ```
    ///
    /// # Errors
    /// What is wrong with its syntax. What it means is not looked at.
    pub fn formatted(origin: &str, text: &str) -> Result<String, Defects> {
        let wrong = |defects| Defects::of(origin, Some(text), defects);
        let draft = line::parse(text).map_err(wrong)?;
        let twice = || wrong(vec![Defect::new(&None, "nodes of one block share a name").advise("rename one of them")]);
        line::format(&draft).ok_or_else(twice)
    }

    /// Returns a reader of workflows that run other workflows; [`Reader::with`] adds those that they may name.
    #[must_use]
    pub fn reader() -> Reader {
        Reader::default()
    }
}

/// Reads workflows from text, with the workflows that they may name.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    library: BTreeMap<String, Workflow>,
}

impl Reader {
    /// Adds a workflow that nodes may run by its name, in place of any that was added under the same name before.
    #[must_use]
    pub fn with(mut self, workflow: &Workflow) -> Self {
        self.library.insert(workflow.name().to_owned(), workflow.clone());
        self
    }

    /// As [`Workflow::from_toml`].
    ///
    /// # Errors
    /// Everything that is wrong with it, each with its place.
    pub fn toml(&self, origin: &str, text: &str) -> Result<Workflow, Defects> {
        self.read(origin, text, toml::parse(text))
    }

    /// As [`Workflow::from_line`].
    ///
    /// # Errors
    /// Everything that is wrong with it, each with its place.
    pub fn line(&self, origin: &str, text: &str) -> Result<Workflow, Defects> {
        self.read(origin, text, line::parse(text))
    }

    /// As [`Reader::toml`], from bytes that may not be text.
    ///
    /// # Errors
    /// Also where they are no text.
    pub fn toml_bytes(&self, origin: &str, bytes: &[u8]) -> Result<Workflow, Defects> {
        match text_of(bytes) {
            Ok(text) => self.toml(origin, text),
            Err(defect) => self.read(origin, &String::from_utf8_lossy(bytes), Err(vec![defect])),
        }
    }

    /// The workflows that nodes may name.
    pub(super) fn library(&self) -> &BTreeMap<String, Workflow> {
        &self.library
    }

    fn read(&self, origin: &str, text: &str, draft: Result<Draft, Vec<Defect>>) -> Result<Workflow, Defects> {
        match draft {
            Ok(draft) => Workflow::of(draft, Some((origin, text)), &self.library),
            Err(defects) => Err(Defects::of(origin, Some(text), defects)),
        }
    }
}
