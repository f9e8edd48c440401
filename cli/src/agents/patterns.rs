//! The options `--pipeline`, `--peers` and `--review`: patterns by which several agents work on a task.

use std::collections::BTreeSet;

use clap::Args;
use serde_json::Value;

use callboard::messages::{Plan, Submission};
use callboard::workflow::Workflow;
use callboard::workflow::patterns::{Peers, Pipeline, Review};

use crate::page::Failure;
use crate::quote::quoted;

/// The pattern by which several agents work. By default one agent receives the task, and can delegate to the others.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct Pattern {
    /// These agents work one after another: each receives the output of the one before. A name with a comma is put in double quotes
    #[arg(long, value_name = "AGENT,…", value_parser = names, conflicts_with_all = ["to", "resume", "retry"])]
    pub(crate) pipeline: Vec<Names>,
    /// These agents work side by side in rounds, and read what the others wrote, until all are done
    #[arg(long, value_name = "AGENT,…", value_parser = names, conflicts_with_all = ["to", "resume", "retry"])]
    pub(crate) peers: Vec<Names>,
    /// The first of these three agents makes a plan, the second works by it, and the third reviews the work until it accepts it
    #[arg(long, value_name = "PLANNER,EXECUTOR,REVIEWER", value_parser = names, conflicts_with_all = ["to", "resume", "retry"])]
    pub(crate) review: Vec<Names>,
}

/// The names in one argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names(Vec<String>);

fn all(lists: &[Names]) -> impl Iterator<Item = &String> {
    lists.iter().flat_map(|Names(names)| names)
}

/// Parses names that are separated by commas. A name in double quotes may contain commas, and doubled quotes.
fn names(text: &str) -> Result<Names, String> {
    let (mut names, mut rest) = (Vec::new(), text);
    loop {
        let (name, after) = match rest.strip_prefix('"') {
            Some(inner) => quoted_name(inner).ok_or("a name begins with a double quote and has none at its end")?,
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                (rest[..end].to_owned(), &rest[end..])
            }
        };
        if name.trim().is_empty() {
            return Err("a name is empty: write names with commas between them, as in ann,bob".to_owned());
        }
        names.push(name);
        rest = match after.strip_prefix(',') {
            Some(next) => next,
            None if after.is_empty() => return Ok(Names(names)),
            None => return Err("after a name in double quotes comes a comma, or nothing".to_owned()),
        };
    }
}

/// The name up to its closing quote, and the rest after it.
fn quoted_name(inner: &str) -> Option<(String, &str)> {
    let (mut name, mut rest) = (String::new(), inner);
    loop {
        let (part, after) = rest.split_once('"')?;
        name.push_str(part);
        match after.strip_prefix('"') {
            Some(more) => {
                name.push('"');
                rest = more;
            }
            None => return Some((name, after)),
        }
    }
}

impl Pattern {
    /// The agents that it names.
    pub(super) fn participants(&self) -> impl Iterator<Item = &String> {
        let Self { pipeline, peers, review } = self;
        all(pipeline).chain(all(peers)).chain(all(review))
    }

    /// The workflow of the pattern, with at most `rounds` rounds; `None` if no pattern is given.
    pub(super) fn workflow(&self, rounds: Option<u32>) -> Result<Option<Workflow>, Failure> {
        if rounds.is_some() && self.peers.is_empty() && self.review.is_empty() {
            return Err(Failure::usage("--rounds is for --peers and --review".to_owned()));
        }
        let built = match self {
            Self { pipeline, .. } if !pipeline.is_empty() => Pipeline::new("pipeline").all(all(pipeline)).build(),
            Self { peers, .. } if all(peers).count() == 1 => {
                let text = "--peers takes two agents or more, as in ann,bob; here is 1";
                return Err(Failure::usage(text.to_owned()));
            }
            Self { peers, .. } if !peers.is_empty() => {
                let peers = Peers::new("peers").all(all(peers));
                rounds.into_iter().fold(peers, Peers::rounds).build()
            }
            Self { review, .. } if !review.is_empty() => {
                let review: Vec<&String> = all(review).collect();
                let [planner, executor, reviewer] = review.as_slice() else {
                    let text =
                        format!("--review takes three agents, as in planner,coder,reviewer; here are {}", review.len());
                    return Err(Failure::usage(text));
                };
                let review = Review::new("review", *planner, *executor, *reviewer);
                rounds.into_iter().fold(review, Review::rounds).build()
            }
            Self { .. } => return Ok(None),
        };
        built.map(Some).map_err(|defects| Failure::usage(defects.to_string()))
    }
}

/// Whether it is a run of a workflow, which `callboard workflow` continues: `callboard run` has begun no run with this plan.
pub(crate) fn is_of_workflow(submission: &Submission) -> bool {
    submission.task.plan.as_ref().is_some_and(|plan| option_of(plan).is_none())
}

/// The option that builds this plan; `None` if no option does.
pub(super) fn option_of(plan: &Plan) -> Option<String> {
    let mut participants: Vec<String> = plan.cast().into_iter().map(ToString::to_string).collect();
    let option = match &*plan.name {
        "pipeline" => "--pipeline",
        "peers" => "--peers",
        "review" => "--review",
        _ => return None,
    };
    if option != "--pipeline" {
        // The plan names them several times.
        let mut seen = BTreeSet::new();
        participants.retain(|participant| seen.insert(participant.clone()));
    }
    let listed = vec![Names(participants)];
    let (none, Names(names)) = (Vec::new, &listed[0]);
    let argument = quoted(&names.iter().map(|name| in_list(name)).collect::<Vec<_>>().join(","));
    let pattern = match option {
        "--pipeline" => Pattern { pipeline: listed, peers: none(), review: none() },
        "--peers" => Pattern { pipeline: none(), peers: listed, review: none() },
        _ => Pattern { pipeline: none(), peers: none(), review: listed },
    };
    // A workflow in a file may have this name too, with other nodes, or with nodes that wait for a person.
    let built = pattern.workflow(None).ok().flatten()?;
    let is_same = nodes(built.plan())? == nodes(plan)? && built.plan().cast() == plan.cast();
    let may_wait = has_interrupt(&serde_json::to_value(plan).ok()?);
    (is_same && !may_wait).then(|| format!("{option} {argument}"))
}

/// Whether a node, also an inner one, waits for a person before it starts.
fn has_interrupt(part: &Value) -> bool {
    match part {
        Value::Object(fields) => {
            fields.get("is_interrupted") == Some(&true.into()) || fields.values().any(has_interrupt)
        }
        Value::Array(parts) => parts.iter().any(has_interrupt),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The names of the outermost nodes of a plan, and what each comes after.
fn nodes(plan: &Plan) -> Option<Vec<(Value, Value)>> {
    let plan = serde_json::to_value(plan).ok()?;
    let nodes = plan["body"]["nodes"].as_array()?;
    Some(nodes.iter().map(|node| (node["name"].clone(), node["after"].clone())).collect())
}

/// A name, quoted for a list where it has to be.
fn in_list(name: &str) -> String {
    if name.contains(',') || name.starts_with('"') {
        format!("\"{}\"", name.replace('"', "\"\""))
    } else {
        name.to_owned()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use clap::Parser as _;

    use crate::arguments::Arguments;

    use super::*;

    fn built_by(arguments: &[&str]) -> Option<String> {
        let Arguments::Run(run) = Arguments::parse_from([&["callboard", "run", "x"], arguments].concat()) else {
            panic!("it is a run")
        };
        option_of(run.pattern.workflow(run.rounds).unwrap().unwrap().plan())
    }

    #[test]
    fn a_plan_has_the_option_that_made_it() {
        for (option, names) in [("--pipeline", "a,b,a"), ("--peers", "a,b"), ("--review", "a,b,c")] {
            assert_eq!(built_by(&[option, names]), Some(format!("{option} {names}")));
        }
        assert_eq!(built_by(&["--peers", "a,b", "--rounds", "7"]).unwrap(), "--peers a,b");
        let awkward = r#""a b,c",it's"#;
        assert_eq!(built_by(&["--pipeline", awkward]).unwrap(), r#"--pipeline '"a b,c",it'\''s'"#);
        let other = Workflow::from_line("", "workflow pipeline: plan | write").unwrap();
        assert_eq!(option_of(other.plan()), None);
        let other = Workflow::from_line("", "workflow daily: plan -> write").unwrap();
        assert_eq!(option_of(other.plan()), None);
        let same = Pipeline::new("pipeline").all(["a", "b"]).build().unwrap();
        assert_eq!(option_of(same.plan()).as_deref(), Some("--pipeline a,b"));
        assert!(!has_interrupt(&serde_json::to_value(same.plan()).unwrap()));
        let waits = Workflow::from_line("", "a -> b(interrupt=\"before\")").unwrap();
        assert!(has_interrupt(&serde_json::to_value(waits.plan()).unwrap()));
    }

    fn read(text: &str) -> Result<Vec<String>, String> {
        names(text).map(|Names(names)| names)
    }

    #[test]
    fn a_name_with_a_comma_is_quoted() {
        let names = |names: &[&str]| Ok(names.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(read("a,b c,d"), names(&["a", "b c", "d"]));
        assert_eq!(read("\"a b,c\",good"), names(&["a b,c", "good"]));
        assert_eq!(read("\"say \"\"hi\"\"\""), names(&["say \"hi\""]));
        let refused = |text: &str| read(text).unwrap_err();
        assert_eq!(refused("\"a"), "a name begins with a double quote and has none at its end");
        assert_eq!(refused("\"a\"b"), "after a name in double quotes comes a comma, or nothing");
    }
}
