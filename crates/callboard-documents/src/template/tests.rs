//! The rules of the language in docs/workflow-templates.md.

use serde_json::Value;

use super::*;

const PAGE: &str = include_str!("../../../../docs/workflow-templates.md");

/// Every name is a field of the input.
struct Fields(Value);

impl Names<String> for Fields {
    fn resolve(&self, path: &[&str]) -> Result<(String, usize), Fault> {
        Ok((path[0].to_owned(), 1))
    }
}

impl Lookup<String> for Fields {
    fn lookup(&self, name: &String) -> Result<Arc<Value>, String> {
        self.0.get(name).cloned().map(Arc::new).ok_or_else(|| format!("the input has no field `{name}`"))
    }
}

fn fences(language: &str) -> Vec<&'static str> {
    let begin = format!("```{language}\n");
    PAGE.split(&begin).skip(1).filter_map(|fence| fence.split("```").next()).collect()
}

fn given(source: &str, fields: &Fields) -> Result<Arc<Value>, String> {
    if source.contains("{{") || source.contains("{%") || source.contains("{#") {
        let template = Template::compile(&source.into(), fields).map_err(|fault| fault.problem)?;
        return template.render(fields);
    }
    Compiled::of(source, fields).map_err(|fault| fault.problem)?.value(fields)
}

#[test]
fn every_example_of_the_page_gives_the_stated_result() {
    let fields = Fields(serde_json::from_str(fences("json")[0]).unwrap());
    let mut count = 0;
    for line in fences("text").into_iter().flat_map(str::lines) {
        let (source, wanted) = line.rsplit_once("=>").unwrap();
        let (source, wanted) = (source.trim(), wanted.trim());
        let found = given(source, &fields);
        match wanted.strip_prefix("error: ") {
            Some(problem) => assert!(found.as_ref().is_err_and(|error| error.contains(problem)), "{source}: {found:?}"),
            None => {
                let wanted: Value = serde_json::from_str(wanted).unwrap();
                assert_eq!(found, Ok(Arc::new(wanted)), "{source}");
            }
        }
        count += 1;
    }
    assert!(count > 50, "{count}");
}

#[test]
fn the_page_names_all_there_is_to_call() {
    let names = [calls::FILTERS, calls::TESTS, calls::FUNCTIONS].into_iter().flat_map(str::split_whitespace);
    for name in names {
        let is_there = PAGE.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).any(|word| word == name);
        assert!(is_there, "{name}");
    }
    for name in "escape e safe d".split(' ') {
        assert!(PAGE.contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn no_node_has_a_name_that_means_something_else() {
    let words = PAGE.split("**Names that nodes cannot have**").nth(1).unwrap().split("on one line").next().unwrap();
    let words: Vec<&str> = words.split('`').skip(1).step_by(2).flat_map(str::split_whitespace).collect();
    assert!(words.len() > 20, "{words:?}");
    for word in words.into_iter().chain(calls::FUNCTIONS.split_whitespace()) {
        assert!(!is_free_name(word), "{word}");
    }
}

#[test]
fn what_a_slice_is_taken_from_is_read() {
    let fields = Fields(serde_json::json!({ "x": [1, 2, 3], "at": 1, "word": "abc" }));
    for (source, value) in [
        ("x[at:]", "[2,3]"),
        ("x[:at]", "[1]"),
        ("x[:]", "[1,2,3]"),
        ("x[::-1]", "[3,2,1]"),
        ("x[at:2][0]", "2"),
        ("(x | sort)[at:at + 1]", "[2]"),
        ("[x[1:], {'a': word[{'k': at}.k:]}]", r#"[[2,3],{"a":"bc"}]"#),
        ("at in [x[at:] | length - 1]", "true"),
        ("{{ word[at:] }}: [1:] {# x[1: #}{% for one in x[at:] %}{{ one }}{% endfor %}", r#""bc: [1:] 23""#),
    ] {
        assert_eq!(given(source, &fields).map(|value| value.to_string()), Ok(value.to_owned()), "{source}");
    }
}

#[test]
fn a_text_that_is_too_long_is_reported_with_its_bound() {
    let reported = given("{% for x in range(9000) %}{{ 'x' * 1000 }}{% endfor %}", &Fields(Value::Null));
    assert_eq!(reported.unwrap_err(), "the text would have more than 8388608 bytes");
}
