use super::*;
use crate::findings::Severity;
use crate::languages::Language;

fn measured(path: &str, text: &str) -> Measurement {
    let language = Language::of(std::path::Path::new(path)).unwrap();
    measure(&SourceFile { path: path.to_owned(), language, bytes: text.len() as u64 }, text)
}

/// Kind, line and subject of each finding.
fn found(path: &str, text: &str) -> Vec<(String, usize, String)> {
    let findings = measured(path, text).findings;
    findings.into_iter().map(|f| (f.kind.label().to_owned(), f.line, f.subject)).collect()
}

fn row(kind: &str, line: usize, subject: &str) -> (String, usize, String) {
    (kind.to_owned(), line, subject.to_owned())
}

#[test]
fn rust_panics_are_found_outside_tests_strings_and_comments() {
    let text = r##"
        /// Call `x.unwrap()` at will.
        /// ```
        /// y.unwrap();
        /// ```
        fn parse<'a>(s: &'a str) -> char {
            // z.unwrap()
            let t = r#"a.unwrap() " } "#;
            let c = '{';
            s.chars()
                .next()
                .unwrap()
        }
        impl<T> Reader<T> for io::File<T> {
            fn read(&self) { self.x.expect("open"); self.p.expect(Token::Open); self.m.lock().unwrap(); }
            fn later(&self) { todo!() }
        }
        #[cfg(test)]
        mod tests {
            #[test]
            fn works() { x.unwrap(); panic!("no"); }
        }
        #[cfg(not(test))]
        fn real() { panic!("{}", 1) }
        #[tokio::test]
        async fn also_a_test() { x.unwrap() }
        fn last() { #[cfg(test)] x.unwrap(); y.unwrap_or(1); }
    "##;
    let expected = [
        row("Possible panic", 12, "parse"),
        row("Possible panic", 15, "File::read"),
        row("Possible panic", 16, "File::later"),
        row("Possible panic", 24, "real"),
    ];
    assert_eq!(found("src/a.rs", text), expected);
    assert!(found("tests/a.rs", text).is_empty());
    let crlf = text.replace('\n', "\r\n");
    assert_eq!(found("src/a.rs", &crlf), expected);
}

#[test]
fn functions_inside_count_their_own_lines() {
    let steps = |count: usize| "    step();\n".repeat(count);
    let nested = format!("fn outer() {{\n{}    fn inner() {{\n{}    }}\n}}\n", steps(40), steps(40));
    assert!(found("src/a.rs", &nested).is_empty());
    let long = format!("fn short() {{ a() }}\nfn long() {{\n{}\n// comment\n\n}}\n", steps(59));
    assert_eq!(found("src/a.rs", &long), [row("Long function", 2, "long")]);
    assert_eq!(measured("src/a.rs", &long).findings[0].size, 61);
    let python = format!("class A:\n    async def long(\n        self,\n    ):\n{}", "        step()\n".repeat(60));
    assert_eq!(found("a.py", &python), [row("Undocumented public item", 1, "A"), row("Long function", 2, "A.long")]);
    let script = format!("class A {{\n  async long(a = {{}}) {{\n{}  }}\n}}\n", steps(60));
    assert_eq!(found("a.js", &script), [row("Long function", 2, "A.long")]);
    let computed = format!("class A {{\n  async [_long] () {{\n{}  }}\n}}\n", steps(60));
    assert_eq!(found("a.js", &computed), [row("Long function", 2, "A.[_long]")]);
    let arrow = format!("const long = async (a: Map<A, B>): Promise<X> => {{\n{}}}\n", steps(60));
    assert_eq!(found("a.ts", &arrow), [row("Long function", 1, "long")]);
}

#[test]
fn rust_levels_are_control_structures_and_closures() {
    let deep = "fn f(x: X) {\n for a in b {\n  if let P { q } = a {\n   match q {\n    A => { loop {\n     while let Some(c) = d { go() }\n    } }\n   }\n  }\n }\n}";
    assert_eq!(found("src/a.rs", deep), [row("Deep nesting", 6, "f")]);
    let literals = "fn f() -> A { A { b: B { c: C { d: D { e: E { f: F { g: 1 } } } } } } }";
    assert!(found("src/a.rs", literals).is_empty());
    let chain = "fn f() { if a { } else if b { } else if c { } else if d { } else if e { } else { g() } }";
    assert!(found("src/a.rs", chain).is_empty());
    let strings = "fn f() { if a { x(\"{{{{{{\", '{', '{', '{', '{'); } }";
    assert!(found("src/a.rs", strings).is_empty());
    let condition = "fn f() { if a { if b { if c { if let Some(d) = e(|x| { x }) { g() } } } } }";
    assert!(found("src/a.rs", condition).is_empty());
    let bounds = "fn f() where for<'a> F: Fn(&'a u8) { impl A for B { fn g() { if a { if b { if c { h() } } } } } }";
    assert!(found("src/a.rs", bounds).is_empty());
}

#[test]
fn python_levels_are_blocks_whatever_the_indentation() {
    let deep = "def f():\n\tfor a in b:\n\t\tif a:\n\t\t\twith c(\n1,\n):\n\t\t\t\ttry:\n\t\t\t\t\twhile d:\n\t\t\t\t\t\tgo()\n\t\t\t\texcept E: return\n";
    assert_eq!(found("a.py", deep), [row("Undocumented public item", 1, "f"), row("Deep nesting", 9, "f")]);
    let chain = "def _f():\n  if a: b()\n  elif c:\n    d = {\n'x': [\n1]}\n  else:\n    e()\n";
    assert!(found("a.py", chain).is_empty());
}

#[test]
fn javascript_levels_are_control_structures_and_callbacks() {
    let deep =
        "function f() { for (;;) { if (a) { g(() => { try { b.map(function (c) { h() }) } catch { log() } }) } } }";
    assert_eq!(found("a.js", deep), [row("Deep nesting", 1, "f")]);
    let objects = "const f = () => { return { a: { b: { c: { d: { e: `${{}}` } } } } } }";
    assert!(found("a.js", objects).is_empty());
}

#[test]
fn python_handlers_that_drop_errors_or_take_everything_are_found() {
    let text = "try:\n    a()\nexcept:\n    pass\ntry:\n    b()\nexcept Exception as e: pass\ntry:\n    c()\nexcept:\n    undo()\n    raise\ntry:\n    d()\nexcept Exception:\n    pass  # gone already\ntry:\n    e()\nexcept ValueError:\n    pass\ns = 'except: pass'\ntry:\n    f()\nexcept:\n    log()\n";
    let expected = [row("Swallowed error", 3, ""), row("Swallowed error", 7, ""), row("Bare except", 24, "")];
    assert_eq!(found("a.py", text), expected);
    let severities: Vec<_> = measured("a.py", text).findings.into_iter().map(|finding| finding.severity).collect();
    assert_eq!(severities, [Severity::High, Severity::Medium, Severity::Low]);
}

#[test]
fn javascript_handlers_that_drop_errors_are_found() {
    let text = "function f() {\ntry { a() } catch (e) { }\ntry { b() } catch {\n}\ntry { c() } catch (e) { /* gone */ }\n\nd().catch(() => {})\n// may be gone\ne().catch(() => {})\ng().catch(() => ({}))\ni().catch(function (e) { })\nlet s = 'catch {}', r = /catch {}/\n}";
    let expected = [2, 3, 7, 11].map(|line| row("Swallowed error", line, "f"));
    assert_eq!(found("a.js", text), expected);
}

#[test]
fn marks_are_found_in_comments_alone() {
    let text = "// TODO: one\n/* a\n * FIXME two */\nlet s = \"TODO: no\"; // see the TODO list\n// todo, XXX-Y, TODOS\n/// XXX\n// later, TODO(bob) three\n// goes on. No\n// more\n";
    let marks = measured("src/a.rs", text).findings;
    let shown: Vec<_> = marks.iter().map(|f| (f.line, f.subject.as_str(), f.message.as_str())).collect();
    let expected = [
        (1, "TODO", "one"),
        (3, "FIXME", "two"),
        (6, "XXX", "left open without a word"),
        (7, "TODO", "(bob) three goes on. No more"),
    ];
    assert_eq!(shown, expected);
    assert_eq!(found("a.py", "x = 1  # TODO tidy\n"), [row("Open mark", 1, "TODO")]);
}

#[test]
fn undocumented_rust_items_are_found() {
    let text = "//! Room.\npub fn a() {}\n/// Yes.\n#[inline]\npub fn b() {}\n#[doc = \"yes\"] pub struct C;\npub(crate) fn d() {}\nmod private { pub fn e() {} }\npub mod open { pub enum F {} }\nimpl C { pub const unsafe fn g() {}\n fn h() { pub fn i() {} } }\n/** Yes. */ pub trait J {}\n//// no\npub async fn k() {}\n#[cfg(test)] pub fn l() {}";
    let expected =
        [(2, "a"), (9, "F"), (10, "C::g"), (14, "k")].map(|(line, name)| row("Undocumented public item", line, name));
    assert_eq!(found("src/a.rs", text), expected);
    assert!(found("src/main.rs", text).is_empty());
}

#[test]
fn undocumented_python_items_are_found() {
    let text = "\u{feff}def a(): return 1\n@wraps(f)\nasync def b(\n    x: int = {1: 2}[1],\n) -> dict[str, int]:\n    \"\"\"Yes.\"\"\"\nclass C(Base):\n    r'''Yes.'''\n    def d(self): pass\ndef _e(): pass\nclass F: pass\ndef g(): 'yes'\n";
    let expected = [(1, "a"), (11, "F")].map(|(line, name)| row("Undocumented public item", line, name));
    assert_eq!(found("a.py", text), expected);
    let listed = format!("__all__ = [\n  'F',\n]\n{}", text.trim_start_matches('\u{feff}'));
    assert_eq!(found("a.py", &listed), [row("Undocumented public item", 14, "F")]);
}

#[test]
fn undocumented_javascript_items_are_found() {
    let text = "/** Yes. */\nexport function a() {}\nexport default class B {}\nfunction c() {}\n// no\nexport async function* d() {}\nclass E {}\nmodule.exports = { E, c: c }\nexports.f = function () {}\n/** Yes. */\n@Injectable()\nexport class G {}\nfunction hidden() {}\n";
    let expected = [(3, "B"), (4, "c"), (6, "d"), (7, "E"), (9, "default")]
        .map(|(line, name)| row("Undocumented public item", line, name));
    assert_eq!(found("a.js", text), expected);
}

#[test]
fn fingerprints_stay_when_lines_are_inserted_above() {
    let text = "pub fn a() { x.unwrap() }\n// TODO: b\n";
    let prints =
        |text: &str| measured("src/a.rs", text).findings.into_iter().map(|f| f.fingerprint).collect::<Vec<_>>();
    assert_eq!(prints(text).len(), 3);
    assert_eq!(prints(text), prints(&format!("// new\n\nfn new() {{}}\n{text}")));
}

#[test]
fn empty_files_measure_nothing() {
    for (path, text) in [("a.rs", ""), ("a.py", "\u{feff}"), ("a.js", "\r\n"), ("b.py", "# only a comment")] {
        let measurement = measured(path, text);
        assert_eq!((measurement.code_lines, measurement.findings.len()), (0, 0));
    }
}

#[test]
fn a_measurement_travels_as_json_without_its_lines() {
    let mut measurement = measured("src/a.rs", "mod b;\npub use b::C;\npub fn a() { x.unwrap() }");
    let json = serde_json::to_string(&measurement).unwrap();
    assert!(!measurement.significant.is_empty());
    measurement.significant.clear();
    assert_eq!(serde_json::from_str::<Measurement>(&json).unwrap(), measurement);
}

proptest::proptest! {
    #[test]
    fn any_text_is_measured(text in "([{}()\\[\\];:=>|#!@\"'`/*\\\\ \n\t,.<]|fn |if |impl |mod |def |class |except|catch|export |function |match |pub |for |in |let |TODO|x){0,80}") {
        for path in ["a.rs", "a.py", "a.ts"] {
            measured(path, &text);
        }
    }
}
