//! Four patterns of agents: one after another, with a reviewer, side by side in rounds, and under a coordinator.
//!
//! The agents of the first three are functions, so that their work can be read here; models would receive the same inputs. The
//! coordinator uses a model that needs no key and gives fixed answers; one of its workers is the third pattern.
//!
//! Run it with `cargo run -p callboard-agents --example together`.

use std::error::Error;
use std::sync::Arc;

use callboard::prelude::*;
use callboard::workflow::patterns::{Peers, Pipeline, Review};
use callboard_agents::{Definition, FakeModel, Team};
use serde_json::{Value, json};

/// The longest line that the critic accepts, in characters.
const SHORT: usize = 30;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let review = Review::new("headline", "planner", "writer", "critic").rounds(4).build()?;
    let pipeline = Pipeline::new("newspaper").then("reporter").then(&review).then("printer").build()?;
    let panel = Peers::new("panel").with("low").with("high").with("middle").rounds(6).build()?;
    let team = Team::new(definition("lead", "Has others work.")?, Arc::new(FakeModel))
        .worker(definition("historian", "Knows what was.")?, Arc::new(FakeModel))
        .with("estimators", "Agree on a number.");
    let board = team.specs()?.into_iter().fold(Callboard::builder(), |board, agent| board.with(agent));
    let board = board
        .agent("reporter", |turn: Turn| async move {
            Ok(Command::output(format!("{} in the harbour", turn.input::<String>()?)))
        })
        .agent("planner", |_: Turn| async { Ok(Command::output("say it all, then say it shorter")) })
        .agent("writer", write)
        .agent("critic", criticise)
        .agent("printer", print)
        .agent("low", |turn: Turn| estimate(turn, 10.0))
        .agent("high", |turn: Turn| estimate(turn, 50.0))
        .agent("middle", |turn: Turn| estimate(turn, 30.0))
        .workflow("estimators", &panel, Complexity::Medium)
        .start()
        .await?;

    println!("One after another, with a reviewer in the middle:");
    let result = board.submit(pipeline.task("A whale was seen by three fishermen")).await?.result().await?;
    println!("{}\n", result.output.as_str().unwrap_or_default());

    println!("Side by side, in rounds:");
    let result = board.submit(panel.task("How many boats are out?")).await?.result().await?;
    for said in result.output["said"].as_array().into_iter().flatten() {
        println!("  round {}: {} writes {}", said["round"], said["by"].as_str().unwrap_or_default(), said["text"]);
    }
    println!("  agreed: {} after {} rounds\n", result.output["done"], result.output["rounds"]);

    println!("Under a coordinator:");
    let result = board.submit(team.task("How many boats went out this year, and today?")).await?.result().await?;
    println!("{}", result.output.as_str().unwrap_or_default());
    board.shutdown().await;
    Ok(())
}

fn definition(name: &str, description: &str) -> Result<Definition, callboard_agents::Defects> {
    let prompt = "You are {{ agent.name }}. {{ agent.description }}";
    let text = format!("[agent]\nname = {name:?}\ndescription = {description:?}\nsystem_prompt = {prompt:?}");
    Definition::from_toml(name, &text)
}

/// Writes the task, and omits one more word each time the critic rejects it.
async fn write(turn: Turn) -> Result<Command, TurnError> {
    let given = turn.input_json();
    // The last draft, or the task at first.
    let text = given["work"].as_str().or(given["task"].as_str()).unwrap_or_default();
    let words: Vec<&str> = text.split(' ').collect();
    let kept = if given["feedback"].is_null() { words.len() } else { words.len().saturating_sub(3) };
    Ok(Command::output(words[..kept].join(" ")))
}

async fn criticise(turn: Turn) -> Result<Command, TurnError> {
    let given = turn.input_json();
    let work = given["work"].as_str().unwrap_or_default();
    let length = work.chars().count();
    println!("  round {}: {work:?} has {length} characters", given["round"]);
    Ok(Command::output(match length {
        0..=SHORT => "It fits.\nACCEPTED".to_owned(),
        _ => format!("It may have {SHORT}.\nREJECTED"),
    }))
}

async fn print(turn: Turn) -> Result<Command, TurnError> {
    let given = turn.input_json();
    let verdict = if given["accepted"] == true { "printed" } else { "printed, though nobody accepted it" };
    Ok(Command::output(format!("  {verdict}: {}", given["work"])))
}

/// Starts with its own number, and then uses the mean of the last round.
async fn estimate(turn: Turn, first: f64) -> Result<Command, TurnError> {
    let given = turn.input_json();
    let last_round = given["round"].as_u64().unwrap_or_default().saturating_sub(1);
    let said = given["said"].as_array().into_iter().flatten().filter(|said| said["round"] == last_round);
    let numbers: Vec<f64> = said.filter_map(|said| said["text"].as_f64()).collect();
    let number = if numbers.is_empty() { first } else { numbers.iter().sum::<f64>() / numbers.len() as f64 };
    let is_agreed = !numbers.is_empty() && numbers.iter().all(|other| *other == number);
    let answer: Value = json!({ "done": is_agreed, "text": number });
    Ok(Command::output(answer))
}
