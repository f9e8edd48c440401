use html5gum::emitters::default::DefaultEmitter;
use html5gum::{Token, Tokenizer};
use proptest::prelude::*;

use super::*;

/// Pieces of markup, words and white space, in every order.
fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[a-zA-Zäß_]{1,12}",
        4 => prop_oneof![Just(" "), Just("\n"), Just("\n\n"), Just("\r\n"), Just("\t"), Just("\r")].prop_map(str::to_owned),
        3 => prop_oneof![
            Just("# "), Just("## "), Just("- "), Just("> "), Just("1. "), Just("|"), Just("---\n"), Just("```\n"), Just("`"), Just("``"),
            Just("["), Just("]"), Just("[["), Just("]]"), Just("("), Just(")"), Just("<"), Just(">"), Just("    "), Just("\n[a]: b\n"),
            Just("fn "), Just("class "), Just("impl "), Just("{"), Just("}"), Just("/*"), Just("*/"), Just("\"\"\""), Just("\\"), Just("{#x}"),
        ].prop_map(str::to_owned),
        1 => "[\u{300}\u{202e}\u{200d}\u{feff}日本語。\u{1f600}&;!:*_~$^]{1,8}",
        1 => "[a-z]{60,400}",
        1 => (1_usize..400).prop_map(|count| "word ".repeat(count)),
    ];
    prop::collection::vec(piece, 1..60).prop_map(|pieces| pieces.concat())
}

/// Pieces of HTML in every order.
fn html() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        3 => "[a-z]{3,8}",
        2 => prop_oneof![Just(" "), Just("\n"), Just(">"), Just("<"), Just("/"), Just("="), Just("\""), Just("'"), Just("!"), Just("-")].prop_map(str::to_owned),
        4 => prop_oneof![
            Just("<p>"), Just("</p>"), Just("<p a=\""), Just("<p a='"), Just("\">"), Just("'>"), Just("<!--"), Just("-->"), Just("--!>"), Just("<!"),
            Just("<?"), Just("</"), Just("<script>"), Just("</script>"), Just("<STYLE >"), Just("</style\n>"), Just("<title>"), Just("</title>"),
            Just("<textarea>"), Just("</textarea>"), Just("<script-x>"), Just("<noscript>"), Just("</noscript>"), Just("<p ="), Just("<p/"),
        ].prop_map(str::to_owned),
    ];
    prop::collection::vec(piece, 1..30).prop_map(|pieces| pieces.concat())
}

/// The text of a page as a tokenizer for browsers reads it, with a space for each tag.
fn shown(html: &str) -> String {
    let mut emitter = DefaultEmitter::default();
    emitter.naively_switch_states(true);
    let (mut shown, mut is_hidden) = (String::new(), false);
    for Ok(token) in Tokenizer::new_with_emitter(html, emitter) {
        match token {
            Token::String(text) if !is_hidden => shown.push_str(std::str::from_utf8(&text.value).unwrap()),
            Token::StartTag(tag) => is_hidden = [b"script".as_slice(), b"style"].contains(&tag.name.as_slice()),
            Token::EndTag(_) => is_hidden = false,
            Token::Comment(_) | Token::Doctype(_) => {}
            Token::String(_) | Token::Error(_) => continue,
        }
        shown.push(' ');
    }
    shown
}

proptest! {
    #[test]
    fn every_word_of_a_document_is_in_its_passages(
        text in text(), path in prop_oneof![Just("d/a.md"), Just("a.rs"), Just("a.py"), Just("a.ts"), Just("a.go"), Just("a.java"), Just("a.c"), Just("a")],
    ) {
        let limits = ReadLimits { passage_chars: 300, ..ReadLimits::default() };
        if let Ok(document) = read_document(path, text.as_bytes(), &limits) {
            check(&document, &limits);
            prop_assert_eq!(lost(&document, &text), Vec::<&str>::new());
        } else {
            let is_empty = text.trim_start_matches('\u{feff}').trim().is_empty();
            prop_assert!(is_empty);
        }
    }

    #[test]
    fn a_passage_is_what_the_file_has_in_its_lines(text in text(), path in prop_oneof![Just("a.md"), Just("a.rs"), Just("a.txt")]) {
        let limits = ReadLimits { passage_chars: 300, ..ReadLimits::default() };
        if let Ok(document) = read_document(path, text.as_bytes(), &limits) {
            let lines: Vec<&str> = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).collect();
            for passage in &document.passages {
                let (first, last) = (*passage.lines.start() as usize, *passage.lines.end() as usize);
                let cited = lines[first - 1..last].join("\n");
                prop_assert!(cited.contains(&passage.text), "{:?} is not in {:?}", passage.text, cited);
            }
        }
    }

    #[test]
    fn any_bytes_are_read_or_left_out(bytes in prop::collection::vec(any::<u8>(), 0..600), path in "[a-z/.]{0,8}\\.(md|rs|py|js|html|txt)") {
        let limits = ReadLimits { passages: 5, links: 2, ..ReadLimits::default() };
        match read_document(&path, &bytes, &limits) {
            Ok(document) => check(&document, &limits),
            Err(why) => prop_assert!(!why.to_string().is_empty()),
        }
    }

    #[test]
    fn pages_keep_their_lines(html in html()) {
        let page = html::page(&html);
        prop_assert_eq!(page.text.matches('\n').count(), html.matches('\n').count());
    }

    #[test]
    fn what_a_browser_shows_of_a_page_is_in_its_text(html in html()) {
        // The tokenizer has no token for this one.
        let html = html.replace("</>", " ");
        let page = html::page(&html);
        let kept: HashSet<&str> = words(&page.text).collect();
        let shown = shown(&html);
        let lost: Vec<_> = words(&shown).filter(|word| !kept.contains(word)).collect();
        prop_assert_eq!(lost, Vec::<&str>::new(), "{:?}", page.text);
    }
}
