use std::sync::Arc;

use callboard::env::Env;
use callboard_documents::Defects;

use crate::{Model as _, ModelChoice, ModelEntry, Models};

use super::provider::{Address, Provider};

/// Looked for in everything that is shown.
const CANARY: &str = "sk-canary-0123456789abcdef";

fn read(text: &str) -> Result<Models, Defects> {
    Models::from_toml_with(&Env::system(), "models.toml", text, |name| (name == "MY_KEY").then(|| CANARY.to_owned()))
}

fn problems(text: &str) -> Vec<String> {
    let defects = read(text).unwrap_err();
    assert!(!defects.to_string().contains("sk-"), "{defects}");
    defects.list().iter().map(|defect| defect.problem.clone()).collect()
}

fn model(lines: &str) -> String {
    format!("[[models]]\nname = \"a\"\nprovider = \"openai\"\n{lines}\n")
}

#[test]
fn every_example_of_the_guide_is_a_catalog() {
    let guide = include_str!("../../../../docs/models.md");
    let catalogs: Vec<_> = guide
        .split("```toml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .filter(|text| text.contains("[[models]]"))
        .collect();
    assert_eq!(catalogs.len(), 2);
    let models =
        catalogs.into_iter().map(|text| read(text).unwrap_or_else(|error| panic!("{error}"))).next_back().unwrap();
    let sonnet = models.entries().next().unwrap();
    assert_eq!((&*sonnet.provider, sonnet.max_output, sonnet.tags.len()), ("anthropic", Some(64_000), 2));
    assert_eq!(sonnet.prices.map(|prices| prices.input), Some(3.0));
    assert_eq!(models.candidates(&ModelChoice::of("sonnet")).unwrap().len(), 3);
    assert_eq!(models.candidates(&ModelChoice::tagged(["quick", "careful"])).unwrap(), ["here".into()]);
}

#[test]
fn everything_that_is_wrong_with_a_catalog_is_reported_together() {
    let text = r#"
[[models]]
name = "a"
provider = "opnai"

[[models]]
name = "a"
provider = "openai"
fallback = ["b", "lagre"]
prices = { input = -1, output = "two" }
requests_per_minute = 0
max_tokens = 3

[[models]]
name = "b"
provider = "openai"
fallback = "a"

[[models]]
name = "large"
provider = "openai-compatible"

[providers.mistral]
requests_per_minute = 3
"#;
    let reported = problems(text).join("\n");
    for expected in [
        "there is no provider \"opnai\"; did you mean \"openai\"?; there are aihubmix",
        "two models are named \"a\"",
        "\"a\" falls back to \"lagre\", which is not there; did you mean \"large\"?",
        "`output` must be a number of US dollars, as 0.25, not \"two\"",
        "`requests_per_minute` must be a whole number from 1",
        "a model has no key \"max_tokens\"",
        "a model of a compatible server needs `url`",
        "no model here is of the provider \"mistral\"",
    ] {
        assert!(reported.contains(expected), "{expected}\n\n{reported}");
    }
    let circle = "[[models]]\nname = \"a\"\nprovider = \"openai\"\nfallback = \"b\"\n\
                  [[models]]\nname = \"b\"\nprovider = \"openai\"\nfallback = \"a\"\n";
    let defects = read(circle).unwrap_err();
    assert!(
        defects.to_string().starts_with("models.toml:8:12: fallbacks lead in a circle: \"a\" → \"b\" → \"a\"\n"),
        "{defects}"
    );
}

#[test]
fn texts_that_are_no_catalog_say_how_one_begins() {
    assert_eq!(problems(""), ["there are no models in this text"]);
    assert_eq!(problems("model = 3")[0], "\"model\" is not part of a catalog; did you mean \"models\"?");
    assert_eq!(problems("models = 3"), ["`models` must be an array, not an integer"]);
    assert_eq!(problems("models = [3]"), ["a model must be a table, not an integer"]);
    assert_eq!(problems(&model("prices = { input = -1, output = 2 }")).len(), 1);
    assert_eq!(problems(&model("prices = 3"))[0], "prices must be a table, not an integer");
    assert_eq!(problems(&format!("providers = 3\n{}", model("")))[0], "`providers` must be a table, not an integer");
}

#[test]
fn a_key_that_was_written_into_the_file_is_not_shown() {
    for line in ["key_variable", "key", "api_key", "token"] {
        let reported = problems(&model(&format!("{line} = \"{CANARY}\"")));
        assert_eq!(reported.len(), 1, "{reported:?}");
    }
    let reported = problems(&model(&format!("url = \"https://me:{CANARY}@example.org\"")));
    assert_eq!(
        reported,
        [
            "the url has a name or a password in it: put a key into a variable; write it as \"https://models.example.org/v1\""
        ]
    );
}

#[test]
fn an_address_that_is_none_is_refused() {
    for (url, why) in [
        ("", "is none: relative URL without a base"),
        ("example.org", "is none: relative URL without a base"),
        ("ftp://example.org", "begins neither with https:// nor with http://"),
        ("https://", "is none: empty host"),
        ("https://example.org/#a", "has a part behind #"),
    ] {
        let refused = Address::of(url).map(drop).unwrap_err().to_string();
        assert!(refused.contains(why), "{url}: {refused}");
    }
    assert_eq!(Address::of("http://127.0.0.1:80/v1?a=b").unwrap().url(), "http://127.0.0.1/v1/?a=b");
}

#[test]
fn the_key_goes_unencrypted_only_if_it_goes_over_http_to_another_machine() {
    let is_open = |url| Address::of(url).unwrap().is_open();
    assert!(is_open("http://example.org") && is_open("http://10.0.0.1:4000/v1"));
    for url in ["https://example.org", "http://localhost:1", "http://127.0.0.1:1", "http://[::1]:1/v1"] {
        assert!(!is_open(url), "{url}");
    }
}

#[test]
fn the_address_of_ollama_is_taken_as_its_own_programs_take_it() {
    let url = |host| Address::of_ollama(host).unwrap().url();
    assert_eq!(url("gpu"), "http://gpu:11434/");
    assert_eq!(url("gpu:1"), "http://gpu:1/");
    assert_eq!(url("0.0.0.0"), "http://127.0.0.1:11434/");
    assert_eq!(url("https://gpu.example.org"), "https://gpu.example.org/");
}

fn environment(set: &'static [(&'static str, &'static str)]) -> Models {
    Models::from_variables(&Env::system(), |name| {
        set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    })
}

#[test]
fn a_model_is_found_by_its_name_alone_or_with_its_provider() {
    let models = environment(&[("OPENAI_API_KEY", "k"), ("OLLAMA_HOST", "gpu")]);
    let provider = |name| {
        models.candidates(&ModelChoice::of(name)).unwrap();
        models.breakers(name).map(|_| ())
    };
    for name in ["gpt-5", "openai/gpt-5", "claude-sonnet-4-5", "gemini/gemini-2.5-pro", "qwen3", "open-router/a/b"] {
        assert_eq!(provider(name), Some(()), "{name}");
    }
    let error = |models: &Models, name| models.candidates(&ModelChoice::of(name)).unwrap_err().to_string();
    assert_eq!(
        error(&environment(&[]), "qwen3"),
        "there is no model \"qwen3\": its name does not show its provider; write the provider before it, as \"openai/qwen3\""
    );
    assert!(error(&models, "openai-compatible/x").contains("set OPENAI_BASE_URL"));
    assert!(error(&models, "openai/").contains("named as provider/model"));
}

#[test]
fn without_a_choice_the_error_lists_the_keys_and_what_to_set() {
    let error = |models: Models| models.candidates(&ModelChoice::default()).unwrap_err().to_string();
    assert!(error(environment(&[])).contains("set ANTHROPIC_API_KEY, OPENAI_API_KEY"));
    let some = error(environment(&[("GEMINI_API_KEY", "k"), ("OPENAI_API_KEY", " ")]));
    assert!(some.ends_with("there are keys for gemini, gemini-ix"), "{some}");
}

#[test]
fn a_model_without_its_key_lacks_it_unless_another_may_answer() {
    let lacks = |variables: &'static [(&'static str, &'static str)], choice| {
        environment(variables).chosen(&choice).unwrap().lacks()
    };
    let named = || ModelChoice::of("gpt-5-mini");
    assert_eq!(lacks(&[], named()).as_deref(), Some("there is no key for openai: set OPENAI_API_KEY"));
    assert_eq!(lacks(&[("OPENAI_API_KEY", "k")], named()), None);
    let either = ModelChoice { fallback: vec!["gemini-2.5-pro".into()], ..named() };
    assert_eq!(lacks(&[("GEMINI_API_KEY", "k")], either), None);
}

#[test]
fn models_that_openai_has_for_its_newer_protocol_are_asked_by_it() {
    use ::genai::adapter::AdapterKind;
    let openai = Provider::of("openai").unwrap();
    assert_eq!(openai.kind("gpt-5-mini", false), AdapterKind::OpenAIResp);
    assert_eq!(openai.kind("gpt-4.1", false), AdapterKind::OpenAI);
    assert_eq!(openai.kind("gpt-5-mini", true), AdapterKind::OpenAI, "other servers have the older one");
}

#[test]
fn a_server_of_ones_own_may_want_no_key() {
    let models = environment(&[("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")]);
    assert_eq!(models.candidates(&ModelChoice::of("llama")).unwrap(), ["llama".into()]);
}

#[test]
fn a_model_of_a_catalog_that_is_read_again_keeps_its_connections_unless_it_is_asked_otherwise() {
    let read = |text: &str| {
        Models::from_toml_with(&Env::system(), "models.toml", text, |name| {
            name.ends_with("_KEY").then(|| format!("{CANARY}-{name}"))
        })
        .unwrap()
    };
    let usual = "key_variable = \"MY_KEY\"\nurl = \"http://127.0.0.1:1/v1\"\nmodel = \"m\"";
    let before = read(&model(usual));
    // The model itself has them.
    let continues = |text: &str| {
        let of = |models: &Models| models.entries().next().map(|ModelEntry { model, .. }| Arc::clone(model)).unwrap();
        Arc::ptr_eq(&of(&before), &of(&read(text).after(&before)))
    };
    let other = |from: &str, to: &str| model(&usual.replace(from, to));
    assert!(
        continues(&model(usual)) && continues(&model(&format!("{usual}\ntags = \"quick\"\nrequests_per_minute = 3")))
    );
    for text in [
        other("MY_KEY", "YOUR_KEY"),
        other("MY_KEY", "NOTHING"),
        other(":1/", ":2/"),
        other("\"m\"", "\"n\""),
        model(usual).replace("\"openai\"", "\"anthropic\""),
        model(usual).replace("name = \"a\"", "name = \"b\""),
    ] {
        assert!(!continues(&text), "{text}");
    }
}
