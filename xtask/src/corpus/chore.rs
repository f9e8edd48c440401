//! The command line: `cargo xtask corpus`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io};

use super::questions::record::{self, QuestionKind};
use super::text::hash;
use super::text::markdown::passages;
use super::{CorpusError, CrateText, LIST, QUESTIONS, corpus, extracted, list, questions, read, root, target, write};

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
enum Wish {
    /// Write the documents to a folder.
    Extract { ci: bool, to: Option<PathBuf> },
    /// Write the hashes of what is extracted to the list.
    Update,
    /// Write the questions, or compare the committed ones.
    Questions { check: bool },
}

const USAGE: &str = "usage: cargo xtask corpus [--ci] [--to FOLDER] | --update | questions [--check]";

fn parse(arguments: impl Iterator<Item = String>) -> Result<Wish, String> {
    let mut arguments = arguments.peekable();
    let alone = |wish, other: Option<String>| match other {
        None => Ok(wish),
        Some(other) => Err(format!("what is {other:?} here?")),
    };
    if arguments.next_if_eq("--update").is_some() {
        return alone(Wish::Update, arguments.next());
    }
    if arguments.next_if_eq("questions").is_some() {
        let check = arguments.next_if_eq("--check").is_some();
        return alone(Wish::Questions { check }, arguments.next());
    }
    let (mut ci, mut to) = (false, None);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--ci" => ci = true,
            "--to" => to = Some(arguments.next().ok_or("--to needs a folder")?.into()),
            other => return Err(format!("what is {other:?}?")),
        }
    }
    Ok(Wish::Extract { ci, to })
}

/// `cargo xtask corpus` with these arguments.
pub fn chore(arguments: impl Iterator<Item = String>) -> ExitCode {
    let wish = match parse(arguments) {
        Ok(wish) => wish,
        Err(error) => {
            eprintln!("{error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let done = match wish {
        Wish::Extract { ci, to } => write_documents(ci, &to.unwrap_or_else(|| target().join("corpus"))),
        Wish::Update => update(),
        Wish::Questions { check } => write_questions(check),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("corpus: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write_documents(ci: bool, to: &Path) -> Result<(), CorpusError> {
    let crates = corpus(ci)?;
    for CrateText { listed, extracted } in &crates {
        // Documents of another version or of an earlier extraction.
        match fs::remove_dir_all(to.join(&listed.name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(CorpusError::Io(to.to_owned(), error)),
            Ok(()) | Err(_) => {}
        }
        for document in &extracted.documents {
            write(&to.join(&document.path), &document.text)?;
        }
    }
    report(&crates);
    println!("in {}", to.display());
    Ok(())
}

fn update() -> Result<(), CorpusError> {
    let crates = extracted(false)?;
    let path = root().join(LIST);
    let text = read(&path)?;
    let mut list = list::read(&text)?;
    for listed in &mut list {
        if let Some(found) = crates.iter().find(|found| found.listed.name == listed.name) {
            listed.sha256 = hash(&found.extracted.documents);
        }
    }
    write(&path, &list::write(&list, &text))?;
    report(&crates);
    Ok(())
}

fn write_questions(check: bool) -> Result<(), CorpusError> {
    let made = questions::questions(&corpus(false)?);
    let path = root().join(QUESTIONS);
    let text = record::write(&made);
    if check {
        let committed = read(&path)?;
        let line = || text.lines().zip(committed.lines()).take_while(|(made, committed)| made == committed).count() + 1;
        return if text == committed { Ok(()) } else { Err(CorpusError::OtherQuestions { line: line() }) };
    }
    write(&path, &text)?;
    for kind in QuestionKind::ALL {
        let of_kind = made.iter().filter(|question| question.kind == kind);
        let (mut all, mut held_back, mut ci) = (0, 0, 0);
        for question in of_kind {
            all += 1;
            held_back += usize::from(question.held_back);
            ci += usize::from(question.ci);
        }
        println!("{:<10} {all:>4} questions, {held_back:>3} held back, {ci:>3} in CI", kind.name());
    }
    Ok(())
}

fn report(crates: &[CrateText]) {
    let (mut all, mut documents, mut bytes) = (0, 0, 0);
    for CrateText { listed, extracted } in crates {
        let passages: usize = extracted.documents.iter().map(|document| passages(&document.text)).sum();
        println!(
            "{:<20} {:<12} {:>4} documents {passages:>6} passages",
            listed.name,
            listed.version,
            extracted.documents.len()
        );
        all += passages;
        documents += extracted.documents.len();
        bytes += extracted.documents.iter().map(|document| document.text.len()).sum::<usize>();
    }
    println!("{} crates, {documents} documents, {all} passages, {bytes} bytes", crates.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Wish, String> {
        parse(arguments.iter().map(|argument| (*argument).to_owned()))
    }

    #[test]
    fn arguments_that_are_unknown_or_incomplete_are_refused() {
        assert_eq!(parsed(&[]), Ok(Wish::Extract { ci: false, to: None }));
        assert_eq!(parsed(&["--to", "x", "--ci"]), Ok(Wish::Extract { ci: true, to: Some("x".into()) }));
        assert_eq!(parsed(&["--update"]), Ok(Wish::Update));
        assert_eq!(parsed(&["questions", "--check"]), Ok(Wish::Questions { check: true }));
        for wrong in [&["--to"][..], &["x"], &["--update", "--ci"], &["questions", "x"]] {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
    }
}
