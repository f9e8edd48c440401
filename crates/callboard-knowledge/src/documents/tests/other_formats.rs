use super::*;

#[test]
fn an_item_is_a_passage_with_its_comment_and_defines_its_name() {
    let text = "//! The gate.\n\nuse std::fmt;\n\n/// Opens at `NINE`.\n#[derive(Debug)]\npub struct Gate {\n    open_since: u32,\n}\n\n\
        // ----\n\nimpl Gate {\n    const LIMIT: u32 = 9;\n\n    pub fn open(&mut self) {\n        let x = 1;\n    }\n}\n";
    let document = read("src/gate.rs", text);
    assert_eq!(document.title, "gate.rs");
    assert_eq!(titles(&document), ["gate.rs", "gate.rs > Gate", "gate.rs > Gate > LIMIT, open"]);
    assert_eq!(document.passages[1].lines, 5..=9);
    assert!(document.passages[2].text.starts_with("// ----"));
    assert_eq!(names(&document.passages[1], Relation::Defines), ["Gate"]);
    assert_eq!(names(&document.passages[1], Relation::Mentions), ["NINE", "open_since"]);
    assert_eq!(names(&document.passages[2], Relation::Defines), ["Gate::LIMIT", "Gate::open", "LIMIT", "open"]);
    assert_eq!(names(&document.passages[2], Relation::Mentions), ["Gate"]);
}

#[test]
fn a_long_item_is_split_and_each_passage_defines_what_it_contains() {
    let method =
        |name: &str| format!("    fn {name}(&self) {{\n{}    }}\n\n", "        self.word_by_word();\n".repeat(30));
    let head = "impl<T> Gate<T>\nwhere\n    T: Clone,\n{\n";
    let document = read("a.rs", &format!("{head}{}{}{}}}\n", method("one"), method("two"), method("three")));
    assert_eq!(titles(&document), ["a.rs > Gate > one", "a.rs > Gate > two", "a.rs > Gate > three"]);
    assert_eq!(names(&document.passages[1], Relation::Defines), ["Gate::two", "two"]);
}

#[test]
fn a_doc_comment_is_filed_under_the_item_below_it() {
    let text = "pub fn open() {}\n/// Closes the gate.\n#[inline]\npub fn close() {}\nimpl Gate {\n    /// Locks it.\n    fn lock() {}\n}\n";
    let document = read("gate.rs", text);
    assert_eq!(titles(&document), ["gate.rs > open", "gate.rs > close"]);
    assert!(document.passages[1].text.starts_with("/// Closes the gate.\n"));
    // One that is longer than a passage.
    let (body, long) = ("        self.word_by_word();\n".repeat(20), "    /// Word by word.\n".repeat(100));
    let text = format!("impl Gate {{\n    fn open(&self) {{\n{body}    }}\n\n{long}    fn close(&self) {{}}\n}}\n");
    let document = read("gate.rs", &text);
    let close = "gate.rs > Gate > close";
    assert_eq!(titles(&document), ["gate.rs > Gate > open", close, close]);
}

#[test]
fn what_follows_a_type_is_no_member_of_it() {
    let document = read("a.rs", "impl Gate {\n    fn open() {}\n}\nfn close() {\n    fn inner() {}\n}\n");
    assert_eq!(names(&document.passages[0], Relation::Defines), ["Gate::open", "close", "inner", "open"]);
}

#[test]
fn names_of_each_language_are_defined() {
    for (path, text, expected) in [
        ("a.py", "class Gate(Base):\n    def open(self):\n        pass\n", &["Gate", "Gate.open", "open"][..]),
        (
            "a.ts",
            "export class Gate {\n  open(key: Key) {\n    if (key) {\n    }\n  }\n}\n",
            &["Gate", "Gate.open", "open"],
        ),
        ("a.go", "// Open opens.\nfunc (g *Gate) Open() {\n}\n", &["Gate.Open", "Open"]),
        ("A.java", "public class Gate {\n    public void open() {\n    }\n}\n", &["Gate", "Gate.open", "open"]),
        ("a.c", "/* Opens. */\nstatic int\nopen_gate(struct gate *gate)\n{\n}\n", &["open_gate"]),
        ("a.hpp", "class Gate : Base {\npublic:\n  void open();\n};\n", &["Gate"]),
    ] {
        assert_eq!(names(&read(path, text).passages[0], Relation::Defines), expected, "{path}");
    }
}

#[test]
fn a_source_file_that_defines_nothing_is_one_passage() {
    let document = read("a.py", "\"\"\"Only words.\"\"\"\n\nimport os\n\nprint(os)\n");
    assert_eq!(titles(&document), ["a.py"]);
    assert_eq!(document.passages[0].lines, 1..=5);
}

#[test]
fn plain_text_is_paragraphs_as_many_as_a_passage_holds() {
    let paragraph = format!("{}\n\n", "word ".repeat(80));
    let document = read("notes/today", &format!("{}It is `read_it`.\n", paragraph.repeat(4)));
    assert_eq!(titles(&document), ["today", "today"]);
    assert_eq!(document.passages[1].lines, 7..=9);
    assert_eq!(names(&document.passages[1], Relation::Mentions), ["read_it"]);
}

#[test]
fn a_page_is_its_text_in_the_lines_of_the_file() {
    let document = read(
        "a.html",
        "<html>\n<title>The gate</title>\n<script>\nlet hidden;\n</script>\n<p>Opens &amp; closes</p>\n",
    );
    assert_eq!(document.title, "The gate");
    assert_eq!(document.passages[0].lines, 2..=6);
    let shown: Vec<_> = document.passages[0].text.split_whitespace().collect();
    assert_eq!(shown, ["The", "gate", "Opens", "&", "closes"]);
    assert_eq!(read_document("a.html", b"<p><!-- hidden -->", &ReadLimits::default()), Err(LeftOut::Empty));
}

#[test]
fn bytes_that_are_replaced_are_reported() {
    let text = [b"# A\n\nA text in Latin-1 with one caf\xe9".as_slice(), &[b'.'; 9]].concat();
    let document = read_document("a.md", &text, &ReadLimits::default()).unwrap();
    assert_eq!(document.leaves_out, [LeftOut::SomeNotUtf8 { at: 35, sequences: 1 }]);
    assert!(document.passages[0].text.contains("caf\u{fffd}"));
}

#[test]
fn the_hash_is_that_of_the_bytes() {
    let (one, two) = (read("a.md", "a\r\nb"), read("a.md", "a\nb"));
    assert_eq!(one.passages, two.passages);
    assert_ne!(one.hash, two.hash);
    assert_eq!(two.hash, <[u8; 32]>::from(Sha256::digest("a\nb")));
}
