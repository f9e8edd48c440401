//! The Markdown of doc comments.

use proc_macro2::TokenTree;
use syn::{AttrStyle, Attribute, Expr, Lit, Meta};

/// The Markdown of the doc comments among the attributes, without the lines that only the tests of examples need; `None` if there is none.
pub(crate) fn documentation(attributes: &[Attribute]) -> Option<String> {
    let lines: Vec<String> = attributes.iter().filter_map(comment).flat_map(|text| lines(&text)).collect();
    let is_blank = |line: &&String| !line.trim().is_empty();
    let indent = lines.iter().filter(is_blank).map(|line| line.len() - line.trim_start_matches(' ').len()).min()?;
    let unindented = lines.iter().map(|line| line.get(indent..).unwrap_or_default().trim_end());
    let text = shown(unindented).trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// The text of `#[doc = "text"]`, which a doc comment is to the parser.
fn comment(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(pair) = &attribute.meta else { return None };
    match &pair.value {
        Expr::Lit(value) if pair.path.is_ident("doc") => match &value.lit {
            Lit::Str(text) => Some(text.value()),
            _ => None,
        },
        // Text that a macro makes or a file has.
        _ => None,
    }
}

/// The lines of one comment; of a block comment without the stars before them.
fn lines(text: &str) -> Vec<String> {
    let text = text.replace("\r\n", "\n").replace('\t', "    ");
    let is_starred = text.lines().count() > 1
        && text.lines().skip(1).all(|line| line.trim().is_empty() || line.trim_start().starts_with('*'));
    let line = |line: &str| match line.trim_start().strip_prefix('*') {
        Some(rest) if is_starred => rest.to_owned(),
        _ => line.to_owned(),
    };
    // An attribute without text is an empty line.
    if text.is_empty() { vec![text] } else { text.lines().map(line).collect() }
}

/// Leaves out the hidden lines of Rust examples: those that begin with a hash sign.
fn shown<'l>(lines: impl Iterator<Item = &'l str>) -> String {
    let mut shown = String::new();
    let mut fence: Option<(String, bool)> = None;
    for line in lines {
        let trimmed = line.trim_start();
        let sign: String = trimmed.chars().take_while(|c| *c == '`' || *c == '~').collect();
        let is_hidden = match &fence {
            Some((_, is_rust)) => *is_rust && (trimmed == "#" || trimmed.starts_with("# ")),
            None => false,
        };
        match &fence {
            Some((opened, _)) if sign.starts_with(opened.as_str()) && trimmed.len() == sign.len() => fence = None,
            None if sign.len() >= 3 => {
                let is_rust = is_rust(&trimmed[sign.len()..]);
                fence = Some((sign, is_rust));
            }
            _ => {}
        }
        if !is_hidden {
            shown += line;
            shown.push('\n');
        }
    }
    shown
}

/// Whether a code block with these words after its fence is an example in Rust.
fn is_rust(words: &str) -> bool {
    let is_known = |word: &str| {
        ["rust", "no_run", "ignore", "should_panic", "compile_fail", "standalone_crate"].contains(&word)
            || word.starts_with("edition")
            || word.starts_with("ignore-")
    };
    words.split([',', ' ']).filter(|word| !word.is_empty()).all(is_known)
}

/// Whether documentation leaves the item out: it is hidden, or is there in tests alone.
pub(crate) fn is_left_out(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let Meta::List(list) = &attribute.meta else { return false };
        let begins_with = |word: &str| match list.tokens.clone().into_iter().next() {
            Some(TokenTree::Ident(ident)) => ident == word,
            Some(_) | None => false,
        };
        (list.path.is_ident("doc") && begins_with("hidden")) || (list.path.is_ident("cfg") && begins_with("test"))
    })
}

/// Where the item begins after its doc comments and attributes, in bytes.
pub(crate) fn end(attributes: &[Attribute]) -> Option<usize> {
    let outer = attributes.iter().filter(|attribute| matches!(attribute.style, AttrStyle::Outer));
    outer.map(|attribute| attribute.bracket_token.span.close().byte_range().end).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(source: &str) -> Option<String> {
        documentation(&syn::parse_file(source).unwrap().items.iter().find_map(attributes).unwrap())
    }

    fn attributes(item: &syn::Item) -> Option<Vec<Attribute>> {
        match item {
            syn::Item::Fn(item) => Some(item.attrs.clone()),
            _ => None,
        }
    }

    #[test]
    fn comments_of_all_forms_are_their_markdown() {
        for (source, expected) in [
            ("/// One.\n///\n///     code\nfn f() {}", Some("One.\n\n    code")),
            ("/** One.\n * Two.\n */\nfn f() {}", Some("One.\nTwo.")),
            ("#[doc = \"One.\"]\n#[doc = \" Two.\"]\nfn f() {}", Some("One.\n Two.")),
            ("#[doc = include_str!(\"x\")]\nfn f() {}", None),
            ("// No.\nfn f() {}", None),
            ("///\nfn f() {}", None),
        ] {
            assert_eq!(of(source).as_deref(), expected, "{source}");
        }
    }

    #[test]
    fn hidden_lines_of_rust_examples_are_left_out() {
        let source = "/// ```no_run\n/// # use a::b;\n/// #[x]\n/// b();\n/// #\n/// ```\n/// ```sh\n/// # c\n/// ```\nfn f() {}";
        assert_eq!(of(source).as_deref(), Some("```no_run\n#[x]\nb();\n```\n```sh\n# c\n```"));
    }

    #[test]
    fn items_that_are_hidden_or_for_tests_are_left_out() {
        for (source, expected) in [
            ("#[doc(hidden)] fn f() {}", true),
            ("#[cfg(test)] fn f() {}", true),
            ("#[cfg(not(test))] fn f() {}", false),
            ("#[cfg(feature = \"test\")] fn f() {}", false),
            ("#[inline] fn f() {}", false),
        ] {
            let file = syn::parse_file(source).unwrap();
            assert_eq!(is_left_out(&attributes(&file.items[0]).unwrap()), expected, "{source}");
        }
    }
}
