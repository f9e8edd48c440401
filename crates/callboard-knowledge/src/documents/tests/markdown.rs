use super::*;

#[test]
fn each_heading_begins_a_passage_that_knows_the_headings_above_it() {
    let document =
        read("a.md", "Before.\n\n# Top\n\nText.\n\n## One\n\n1\n\n### Deep\n\nd\n\n## Two\n\n2\n\n# Next\n\nn\n");
    assert_eq!(document.title, "Top");
    assert_eq!(titles(&document), ["Top", "Top", "Top > One", "Top > One > Deep", "Top > Two", "Next"]);
    let anchors: Vec<_> = document.passages.iter().map(|passage| passage.anchor.as_str()).collect();
    assert_eq!(anchors, ["", "top", "one", "deep", "two", "next"]);
    assert_eq!(document.passages[3].text, "### Deep\n\nd");
    assert_eq!(document.passages[3].lines, 11..=13);
    assert_eq!(document.passages.iter().map(|passage| passage.ordinal).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn a_heading_without_text_begins_the_passage_of_the_heading_below_it() {
    let document = read("a.md", "# Top\n\n## Middle\n\n### Bottom\n\nText.\n\n## Empty\n## Last\n");
    assert_eq!(titles(&document), ["Top > Middle > Bottom", "Top > Empty", "Top > Last"]);
    assert_eq!(document.passages[0].anchor, "bottom");
    assert_eq!(document.passages[0].other_anchors, ["top", "middle"]);
    assert_eq!(names(&document.passages[0], Relation::Defines), ["Bottom", "Middle", "Top"]);
}

#[test]
fn headings_under_lines_and_in_quotations_are_read() {
    let document = read("a.md", "Top\n===\n\nOne\n---\n\n> # Quoted\n\n- # Listed\n");
    assert_eq!(titles(&document), ["Top > One"]);
    assert_eq!(names(&document.passages[0], Relation::Defines), ["Listed", "One", "Quoted", "Top"]);
}

#[test]
fn a_number_sign_in_code_is_no_heading() {
    let document = read("a.md", "# Top\n\n```sh\n# comment\nrun_it\n```\n\n    # indented\n");
    assert_eq!(titles(&document), ["Top"]);
    assert!(document.passages[0].text.contains("# comment\nrun_it"));
    assert_eq!(names(&document.passages[0], Relation::Mentions), ["run_it"]);
}

#[test]
fn the_title_is_that_of_the_metadata_else_of_a_heading_else_of_the_file() {
    for (text, expected) in [
        ("---\ntitle: \"The page\"\nslug: x\n---\n\n# Top\n", "The page"),
        ("+++\ntitle = 'The page'\n+++\n\n# Top\n", "The page"),
        ("---\ntitles: x\n---\n\n## Sub\n\n# Top\n", "Top"),
        ("## Sub\n\nText\n", "Sub"),
        ("Text\n", "page.md"),
        ("# \n\nText\n", "page.md"),
    ] {
        assert_eq!(read("docs/page.md", text).title, expected, "{text}");
    }
}

#[test]
fn only_what_begins_a_file_is_its_metadata() {
    let document = read("a.md", "Text.\n\n---\ntitle: The page\n---\n\n# Top\n\nMore.\n");
    assert_eq!(document.title, "Top");
    assert_eq!(document.passages.last().unwrap().text, "# Top\n\nMore.");
}

#[test]
fn links_of_all_kinds_are_resolved_against_the_folder_of_the_document() {
    let text = "# A\n\n[inline](b.md#part) [ref][r] [r] <https://x.org/#f> [[Page]] [[Page#Part|label]] [[1]](one.md)\n\n\
        ## B\n\n[up](../c.md) [self](#a) ![image](i.png) <a@b.org> [mail](mailto:a@b.org)\n\n[r]: /root.md 'title'\n";
    assert_eq!(
        targets(&read("docs/a.md", text)),
        [
            (0, "docs/b.md", Some("part")),
            (0, "root.md", None),
            (0, "root.md", None),
            (0, "https://x.org/", Some("f")),
            (0, "docs/Page.md", None),
            (0, "docs/Page.md", Some("Part")),
            (0, "docs/one.md", None),
            (1, "c.md", None),
            (1, "docs/a.md", Some("a")),
        ]
    );
}

#[test]
fn the_text_of_a_link_is_what_it_is_written_over() {
    let document = read("a.md", "[The *big*\n`gate`](b.md)");
    assert_eq!(document.links[0].text, "The big gate");
}

#[test]
fn links_out_of_the_folder_are_left_out_and_counted() {
    let document = read("docs/a.md", "[x](../../y.md) [z](../../../etc/passwd)");
    assert_eq!(document.links, []);
    assert_eq!(document.leaves_out, [LeftOut::LinksOutside { count: 2 }]);
}

#[test]
fn links_over_the_limit_are_left_out_and_counted() {
    let limits = ReadLimits { links: 2, ..ReadLimits::default() };
    let document = read_document("a.md", "[x](y.md) ".repeat(5).as_bytes(), &limits).unwrap();
    assert_eq!(document.links.len(), 2);
    assert_eq!(document.leaves_out, [LeftOut::TooManyLinks { count: 3, limit: 2 }]);
}

#[test]
fn code_spans_and_identifiers_are_mentioned_once_in_their_passage() {
    let document =
        read("a.md", "# A\n\n`Board::submit(task)` and `submit`, not `git push`; read_facts.\n\n## B\n\n``Gate``\n");
    assert_eq!(names(&document.passages[0], Relation::Mentions), ["Board", "Board::submit", "read_facts", "submit"]);
    assert_eq!(names(&document.passages[1], Relation::Mentions), ["Gate"]);
}

#[test]
fn a_heading_that_is_an_identifier_defines_it_and_does_not_mention_it() {
    let document = read("a.md", "## `Gate`\n\nA `Gate` opens.\n\n## open_gate()\n\nOpens it.\n");
    let defined = |passage: usize| {
        let entities = document.passages[passage].entities.iter();
        entities.map(|mention| (mention.kind, mention.entity.as_str(), mention.relation)).collect::<Vec<_>>()
    };
    assert_eq!(
        defined(0),
        [(EntityKind::Identifier, "Gate", Relation::Defines), (EntityKind::Heading, "Gate", Relation::Defines)]
    );
    assert_eq!(
        defined(1),
        [
            (EntityKind::Identifier, "open_gate", Relation::Defines),
            (EntityKind::Heading, "open_gate()", Relation::Defines)
        ]
    );
}

#[test]
fn long_sections_are_split_and_keep_their_title_and_anchor() {
    let paragraph = format!("{}\n\n", "word ".repeat(100));
    let document = read("a.md", &format!("# A\n\n{}", paragraph.repeat(10)));
    assert_eq!(document.passages.len(), 5);
    for passage in &document.passages {
        assert_eq!((passage.title.as_str(), passage.anchor.as_str()), ("A", "a"));
        assert!(passage.text.chars().count() <= 1_500);
        assert!(passage.text.ends_with("word"));
    }
    assert_eq!(document.passages[1].lines, 7..=9);
    let defines: Vec<_> = document.passages.iter().map(|passage| names(passage, Relation::Defines).len()).collect();
    assert_eq!(defines, [1, 0, 0, 0, 0]);
}

#[test]
fn markdown_that_is_nested_too_deep_is_read_as_text() {
    let document = read("a.md", &format!("# A\n\n{}x\n", "> ".repeat(60)));
    assert_eq!(titles(&document), ["a.md"]);
    assert_eq!(document.leaves_out, [LeftOut::NestedTooDeep { line: 3, limit: 50 }]);
}
