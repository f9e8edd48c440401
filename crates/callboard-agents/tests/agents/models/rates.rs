//! Rates of a catalog. Nothing is sent: the models have no key, and are refused once it is their turn.

#![allow(clippy::disallowed_methods, reason = "the tests run on tokio's virtual time")]

use std::time::Duration;

use callboard::env::Env;
use callboard_agents::{Model, ModelChoice, ModelErrorKind, Models};
use tokio::time::Instant;

use super::{all, asked};

const MODELS: &str = r#"
[[models]]
name = "a"
provider = "openai"
requests_per_minute = 6

[[models]]
name = "b"
provider = "openai"
"#;

#[tokio::test(start_paused = true)]
async fn rates_of_a_catalog_hold_for_a_model_and_for_all_of_a_provider() {
    let provider = "[providers.openai]\nrequests_per_minute = 3\n";
    let without = MODELS.replace("requests_per_minute = 6\n", "");
    // Those at once, and then one by one as places come free.
    for (catalog, name, seconds) in [
        (MODELS.to_owned(), "a", 20),
        (MODELS.to_owned(), "b", 0),
        (format!("{without}{provider}"), "a", 100),
        (format!("{MODELS}{provider}"), "b", 100),
        (without.clone(), "a", 0),
    ] {
        let models = Models::from_toml_with(&Env::repeatable(7), "models.toml", &catalog, |_| None).unwrap();
        let model = models.chosen(&ModelChoice::of(name)).unwrap();
        let begun = Instant::now();
        for _ in 0..8 {
            let refused = all(model.call(asked())).await.remove(0).unwrap_err();
            assert_eq!(refused.kind, ModelErrorKind::Unauthorised, "{refused}");
        }
        let waited = begun.elapsed();
        assert_eq!(Duration::from_secs(waited.as_secs()), Duration::from_secs(seconds), "{catalog}");
    }
}

#[tokio::test(start_paused = true)]
async fn models_of_a_provider_share_its_rate() {
    let catalog = format!("{MODELS}[providers.openai]\nrequests_per_minute = 1\n");
    let models = Models::from_toml_with(&Env::repeatable(7), "models.toml", &catalog, |_| None).unwrap();
    let begun = Instant::now();
    for name in ["a", "b", "a"] {
        all(models.chosen(&ModelChoice::of(name)).unwrap().call(asked())).await;
    }
    assert_eq!(begun.elapsed().as_secs(), 120);
}
