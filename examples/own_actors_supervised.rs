//! Supervises your own ractor actors: one crashes and is restarted, and in the end its whole group is restarted.
//!
//! Run it with `cargo run --example own_actors_supervised`.

use std::error::Error;
use std::time::Duration;

use callboard::supervision::tree::{
    ChildRef, ChildSpec, Intensity, Restart, RestartBackoff, Supervisor, SupervisorRef, SupervisorSpec, TreeEvent,
};
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tokio::sync::broadcast::Receiver;

/// Counts words, and panics at one of them.
struct Counter;

enum Count {
    Word(&'static str),
    Total(RpcReplyPort<usize>),
}

impl Actor for Counter {
    type Msg = Count;
    type State = usize;
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Count>, (): ()) -> Result<usize, ActorProcessingErr> {
        Ok(0)
    }

    async fn handle(&self, _: ActorRef<Count>, msg: Count, total: &mut usize) -> Result<(), ActorProcessingErr> {
        match msg {
            Count::Word("gazebo") => return Err("cannot count `gazebo`".into()),
            Count::Word(_) => *total += 1,
            Count::Total(reply) => reply.send(*total)?,
        }
        Ok(())
    }
}

/// Two counters that are restarted together, and a supervisor for temporary children.
fn app() -> (SupervisorSpec, ChildRef<Count>, SupervisorRef) {
    let (words, counter) = ChildSpec::actor("words", || (Counter, ()));
    let (lines, _) = ChildSpec::actor("lines", || (Counter, ()));
    let (guests, guests_ref) = ChildSpec::supervisor(SupervisorSpec::one_for_one("guests"));
    let counters = SupervisorSpec::one_for_all("counters")
        .intensity(Intensity::new(2, Duration::from_secs(60)))
        .backoff(RestartBackoff::fixed(Duration::from_millis(50)))
        .child(words)
        .child(lines);
    let app = SupervisorSpec::one_for_one("app").child(ChildSpec::supervisor(counters).0).child(guests);
    (app, counter, guests_ref)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (guest, guest_counter) = ChildSpec::actor("guest", || (Counter, ()));
    let (app, counter, guests) = app();
    let tree = Supervisor::start(app).await?;
    let mut events = tree.subscribe();
    guests.start_child(guest.restart(Restart::Temporary)).await?;
    println!("All run:\n\n{}\n", tree.snapshot().await?);

    counter.cast(Count::Word("folly"))?;
    println!("Words counted: {}\n", total(&counter).await?);

    println!("A word that fails the counter restarts its whole group:\n");
    counter.cast(Count::Word("gazebo"))?;
    print_until(&mut events, "app/counters/lines gen 2: restarted").await?;
    println!("\nWords counted, through the same reference: {}\n", total(&counter).await?);

    println!("The second restart waits a little; a third is too many, and the group is restarted:\n");
    counter.cast(Count::Word("gazebo"))?;
    print_until(&mut events, "app/counters/lines gen 3: restarted").await?;
    counter.cast(Count::Word("gazebo"))?;
    print_until(&mut events, "app/counters gen 2: restarted").await?;

    println!("\nA temporary child is not missed:\n");
    guest_counter.cast(Count::Word("gazebo"))?;
    print_until(&mut events, "app/guests/guest gen 1: failed: cannot count `gazebo`").await?;
    println!("\nWhat is left:\n\n{}\n", tree.snapshot().await?);

    println!("The tree was {}.", tree.stop().await);
    Ok(())
}

async fn total(counter: &ChildRef<Count>) -> Result<usize, Box<dyn Error>> {
    Ok(counter.call(Count::Total, Duration::from_secs(1)).await?)
}

/// Prints the tree's events up to the one whose text is `last`.
async fn print_until(events: &mut Receiver<TreeEvent>, last: &str) -> Result<(), Box<dyn Error>> {
    loop {
        let event = tokio::time::timeout(Duration::from_secs(5), events.recv()).await??.to_string();
        println!("    {event}");
        if event == last {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use callboard::env::Env;
    use callboard::supervision::tree::TreeEventKind;
    use callboard::testing::TreeRecorder;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_third_crash_within_a_minute_rebuilds_the_group() {
        let (app, counter, _) = app();
        let tree = Supervisor::start_in(app, Env::repeatable(7)).await.unwrap();
        let recorder = TreeRecorder::new(tree.subscribe());
        for _ in 0..2 {
            let crashing = counter.actor().unwrap();
            counter.cast(Count::Word("gazebo")).unwrap();
            crashing.wait(Some(SECOND)).await.unwrap();
            recorder.expect("app/counters/lines", |kind| *kind == TreeEventKind::Restarted, SECOND).await;
        }
        let picture = "app\n  counters  gen 1\n    words  restarts 2\n    lines  restarts 2\n  guests";
        tree.snapshot().await.unwrap().assert_picture(picture);
        counter.cast(Count::Word("gazebo")).unwrap();
        recorder.expect("app/counters", |kind| *kind == TreeEventKind::Restarted, SECOND).await;
        let picture = "app\n  counters  gen 2\n    words  gen 1\n    lines  gen 1\n  guests";
        tree.snapshot().await.unwrap().assert_picture(picture);
        tree.stop().await;
    }
}
