//! Agents that work together in a ready-made way, as the command line says it.

use clap::Args;

use callboard::workflow::Workflow;
use callboard::workflow::ways::{Peers, Pipeline, Review};

use crate::page::Failure;

/// How several agents work together. Without it one agent does it, and may give tasks to the others.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct Way {
    /// These agents work one after another: each gets what the one before made
    #[arg(long, value_name = "AGENT,…", value_delimiter = ',', conflicts_with_all = ["to", "resume"])]
    pub(crate) pipeline: Vec<String>,
    /// These agents work side by side in rounds, and read what the others wrote, until all are done
    #[arg(long, value_name = "AGENT,…", value_delimiter = ',', conflicts_with_all = ["to", "resume"])]
    pub(crate) peers: Vec<String>,
    /// The first of these three agents makes a plan, the second works by it, and the third reviews the work until it accepts it
    #[arg(long, value_name = "PLANNER,EXECUTOR,REVIEWER", value_delimiter = ',', conflicts_with_all = ["to", "resume"])]
    pub(crate) review: Vec<String>,
}

impl Way {
    /// The workflow of it, with so many rounds at most; `None` if nothing is said.
    pub(super) fn workflow(&self, rounds: Option<u32>) -> Result<Option<Workflow>, Failure> {
        if rounds.is_some() && self.peers.is_empty() && self.review.is_empty() {
            return Err(Failure::trouble("--rounds is for --peers and --review".to_owned()));
        }
        let built = match self {
            Self { pipeline, .. } if !pipeline.is_empty() => Pipeline::new("pipeline").all(pipeline).build(),
            Self { peers, .. } if !peers.is_empty() => {
                let peers = Peers::new("peers").all(peers);
                rounds.into_iter().fold(peers, Peers::rounds).build()
            }
            Self { review, .. } if !review.is_empty() => {
                let [planner, executor, reviewer] = review.as_slice() else {
                    let text =
                        format!("--review takes three agents, as in planner,coder,reviewer; here are {}", review.len());
                    return Err(Failure::trouble(text));
                };
                let review = Review::new("review", planner, executor, reviewer);
                rounds.into_iter().fold(review, Review::rounds).build()
            }
            Self { .. } => return Ok(None),
        };
        built.map(Some).map_err(|defects| Failure::trouble(defects.to_string()))
    }
}
