//! A catalog that changes while agents work: when a change takes effect, what a mistake does, and what continues.

use std::fs;
use std::path::PathBuf;

use callboard::env::Env;
use callboard::prelude::*;
use callboard::runtime::Builder;
use callboard_agents::{AgentFolder, CatalogFile, ModelChoice, Models, Reload};
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::server::{Server, Step, unused_address};
use super::wire::Format;
use super::{CANARY, all, answer, asked};

fn read(origin: &str, text: &str) -> Result<Models, callboard_agents::Defects> {
    let variables = |name: &str| name.ends_with("_KEY").then(|| format!("{CANARY}-{name}"));
    Models::from_toml_with(&Env::system(), origin, text, variables)
}

/// A model at this address.
fn model(name: &str, url: &str, more: &str) -> String {
    format!("[[models]]\nname = \"{name}\"\nprovider = \"openai-compatible\"\nurl = \"{url}\"\n{more}\n")
}

/// A folder with a poet and a catalog, and a board with the poet.
struct Place {
    folder: TempDir,
    agents: AgentFolder,
    board: Callboard,
}

impl Place {
    async fn new(agent: &str, catalog: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("poet.toml"), agent).unwrap();
        let file = folder.path().join("models.toml.txt");
        fs::write(&file, catalog).unwrap();
        let mut agents = AgentFolder::new(folder.path()).catalog(CatalogFile::new(&file, read));
        let builder = Callboard::builder();
        let board = agents.load().unwrap().into_iter().fold(builder, Builder::with).start().await.unwrap();
        Self { folder, agents, board }
    }

    fn catalog(&self) -> PathBuf {
        self.folder.path().join("models.toml.txt")
    }

    /// What is reported of the catalog when this is written into it, without where it is.
    async fn writes(&mut self, catalog: &str) -> String {
        fs::write(self.catalog(), catalog).unwrap();
        self.reported().await
    }

    async fn reported(&mut self) -> String {
        let reports = self.board.reload(&mut self.agents).await.unwrap();
        let path = format!("{}", self.folder.path().display());
        reports[0].to_string().replace(&format!("{path}/"), "")
    }

    async fn finish(&self) -> String {
        let run = self.board.submit(Task::new("x")).await.unwrap();
        run.result().await.unwrap().output.as_str().unwrap_or_default().to_owned()
    }
}

const POET: &str = "[agent]\nname = \"poet\"\n";

#[tokio::test]
async fn a_turn_under_way_ends_with_the_models_that_it_began_with_and_the_next_has_those_of_the_catalog_now() {
    let (open, gate) = oneshot::channel();
    // A tool that is not there: the model is asked a second time in the same turn.
    let mut first = Format::OpenAi.calls("look", "{}");
    first.insert(1, Step::Gate(gate));
    let (old, new) = (
        Server::start([first, Format::OpenAi.says("as I began")]).await,
        Server::start([Format::OpenAi.says("anew")]).await,
    );
    let mut place = Place::new(POET, &model("m", &old.url, "")).await;
    let under_way = place.board.submit(Task::new("x")).await.unwrap();
    old.arrived().await;
    let reported = place.writes(&model("m", &new.url, "")).await;
    assert_eq!(reported, "models.toml.txt: changed: later turns use it");
    open.send(()).unwrap();
    assert_eq!(under_way.result().await.unwrap().output, "as I began");
    assert_eq!(place.finish().await, "anew");
    place.board.shutdown().await;
}

#[tokio::test]
async fn a_catalog_with_a_defect_or_without_a_model_that_is_needed_changes_nothing_and_reports_why_once() {
    let server = Server::start(["a", "b", "c"].map(|text| Format::OpenAi.says(text))).await;
    let agent = format!("{POET}[agent.model]\npreferred = \"m\"\n");
    let catalog = model("m", &server.url, "");
    let mut place = Place::new(&agent, &catalog).await;

    let reported = place.writes(&catalog.replace("url", "urll")).await;
    let begins = "models.toml.txt: refused, and the models stay as they were:\nmodels.toml.txt:3:12: ";
    assert!(
        reported.starts_with(begins) && reported.contains("\nmodels.toml.txt:4:1: ") && reported.contains("^^^^"),
        "{reported}"
    );
    assert_eq!(place.reported().await, "models.toml.txt: unchanged");
    assert_eq!(place.finish().await, "a");

    let reported = place.writes(&model("n", &server.url, "")).await;
    let why = "models.toml.txt: the agent of poet.toml would have no model: there is no model \"m\"";
    assert!(reported.contains(why), "{reported}");
    fs::remove_file(place.catalog()).unwrap();
    assert!(place.reported().await.ends_with("\nmodels.toml.txt: there is no such file"));
    assert_eq!(place.finish().await, "b");

    // Both at once fit together.
    fs::write(place.folder.path().join("poet.toml"), agent.replace("\"m\"", "\"n\"")).unwrap();
    let reported = place.writes(&model("n", &server.url, "")).await;
    assert_eq!(reported, "models.toml.txt: changed: later turns use it");
    assert_eq!(place.finish().await, "c");
    assert_eq!(
        place.writes(&format!("# the same\n{}", model("n", &server.url, ""))).await,
        "models.toml.txt: unchanged"
    );
    place.board.shutdown().await;
}

#[tokio::test]
async fn a_catalog_that_is_wrong_from_the_beginning_is_reported_with_its_place_alone() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("poet.toml"), POET).unwrap();
    let file = folder.path().join("models.txt");
    fs::write(&file, model("m", &unused_address().await, "price = 3")).unwrap();
    let mut agents = AgentFolder::new(folder.path()).catalog(CatalogFile::new(&file, read));
    let error = agents.load().unwrap_err().to_string();
    assert!(error.contains("models.txt:5:1: a model has no key \"price\"") && !error.contains("poet"), "{error}");
    fs::write(&file, model("m", &unused_address().await, "prices = { input = 1, output = 2 }")).unwrap();
    assert_eq!(agents.load().unwrap().len(), 1);
    assert_eq!(agents.current_models().unwrap().entries().count(), 1);
}

#[tokio::test]
async fn a_model_whose_address_was_put_right_is_asked_at_once() {
    let server = Server::start([Format::OpenAi.says("here")]).await;
    let at = |url: &str| read("models.toml", &model("m", url, "")).unwrap();
    let mut policy = callboard_agents::CallPolicy::default();
    policy.retries = 0;
    let lost = at(&unused_address().await).with_policy(policy);
    for _ in 0..4 {
        all(lost.call(&ModelChoice::of("m"), asked())).await;
    }
    let found = at(&server.url).with_policy(policy).after(&lost);
    assert_eq!(answer(found.call(&ModelChoice::of("m"), asked())).await.0, "here");
}

#[tokio::test]
async fn where_permissions_are_kept_no_model_is_asked_elsewhere_or_with_another_key() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("poet.toml"), POET).unwrap();
    let file = folder.path().join("models.toml.txt");
    let url = "http://127.0.0.1:1/v1";
    let usual = model("m", url, "key_variable = \"A_KEY\"");
    fs::write(&file, &usual).unwrap();
    let mut agents = AgentFolder::new(folder.path()).catalog(CatalogFile::new(&file, read)).keep_permissions();
    let specs = agents.load().unwrap();
    let board = specs.into_iter().fold(Callboard::builder(), Builder::with).start().await.unwrap();
    for catalog in [
        model("m", "http://127.0.0.1:2/v1", "key_variable = \"A_KEY\""),
        model("m", url, "key_variable = \"OTHER_KEY\""),
        "[[models]]\nname = \"m\"\nprovider = \"openai\"\nkey_variable = \"A_KEY\"\n".to_owned(),
        format!("{usual}{}", model("n", "http://127.0.0.1:2/v1", "key_variable = \"A_KEY\"")),
    ] {
        fs::write(&file, &catalog).unwrap();
        let reported = board.reload(&mut agents).await.unwrap()[0].to_string();
        assert!(
            reported.contains("another `provider`, `url` or `key_variable` than at the start: \""),
            "{catalog}: {reported}"
        );
        assert!(reported.contains("takes effect at the next start"), "{reported}");
        // A problem is reported once.
        fs::write(&file, &usual).unwrap();
        board.reload(&mut agents).await.unwrap();
    }
    let other = format!("{usual}tags = [\"quick\"]\n{}", model("n", url, "key_variable = \"A_KEY\""));
    fs::write(&file, other).unwrap();
    let reported = board.reload(&mut agents).await.unwrap()[0].to_string();
    assert!(reported.ends_with("changed: later turns use it"), "{reported}");
    board.shutdown().await;
}

#[tokio::test]
async fn where_permissions_are_kept_no_model_costs_less_than_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("poet.toml"), POET).unwrap();
    let file = folder.path().join("models.toml.txt");
    let url = "http://127.0.0.1:1/v1";
    let priced = |name, input, output| model(name, url, &format!("prices = {{ input = {input}, output = {output} }}"));
    let (usual, free) = (priced("m", 3, 15), model("free", "http://127.0.0.1:2/v1", ""));
    fs::write(&file, format!("{usual}{free}")).unwrap();
    let mut agents = AgentFolder::new(folder.path()).catalog(CatalogFile::new(&file, read)).keep_permissions();
    let specs = agents.load().unwrap();
    let board = specs.into_iter().fold(Callboard::builder(), Builder::with).start().await.unwrap();
    let another = usual.replace("name = \"m\"", "name = \"m\"\nmodel = \"larger\"");
    for (catalog, cheaper) in [
        (priced("m", 2, 15), "m"),
        (priced("m", 3, 0), "m"),
        (another.replace("3", "2"), "m"),
        (format!("{usual}{}", priced("n", 3, 14)), "n"),
        (format!("{usual}{free}prices = {{ input = 1, output = 1 }}\n"), "free"),
    ] {
        fs::write(&file, &catalog).unwrap();
        let reported = board.reload(&mut agents).await.unwrap()[0].to_string();
        let reason = format!(
            "lower `prices` than at the start: \"{cheaper}\"\n  advice: look at the file; such a change takes effect"
        );
        assert!(reported.contains(&reason), "{catalog}: {reported}");
        fs::write(&file, format!("{usual}{free}")).unwrap();
        board.reload(&mut agents).await.unwrap();
    }
    for catalog in [priced("m", 3, 16), another, format!("{usual}{}", priced("n", 3, 15)), model("m", url, "")] {
        fs::write(&file, &catalog).unwrap();
        let reported = board.reload(&mut agents).await.unwrap()[0].to_string();
        assert!(reported.ends_with("changed: later turns use it"), "{catalog}: {reported}");
    }
    board.shutdown().await;
}
