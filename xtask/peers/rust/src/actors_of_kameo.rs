//! kameo: actors that hand on a message with what sends its reply.

use futures::future::join_all;
use kameo::mailbox::unbounded;
use kameo::prelude::*;
use kameo::reply::DelegatedReply;

use crate::measure::{WIDTH, run, time};
use crate::state::{CHAIN, State, Step};

#[derive(Actor)]
struct Hands {
    step: Step,
    next: Option<ActorRef<Hands>>,
}

/// The state, and who waits for it; the first actor of the chain has that from the request.
struct Handed(State, Option<ReplySender<State>>);

impl Message<Handed> for Hands {
    type Reply = DelegatedReply<State>;

    async fn handle(&mut self, Handed(state, reply): Handed, ctx: &mut Context<Self, Self::Reply>) -> Self::Reply {
        let (delegated, asked) = ctx.reply_sender();
        let (state, reply) = ((self.step)(state), reply.or(asked));
        match &self.next {
            Some(next) => next.tell(Handed(state, reply)).await.unwrap(),
            None => reply.unwrap().send(state),
        }
        delegated
    }
}

#[derive(Actor)]
struct Doubler;

struct Double(u64);

impl Message<Double> for Doubler {
    type Reply = u64;

    async fn handle(&mut self, Double(number): Double, _: &mut Context<Self, u64>) -> u64 {
        number * 2
    }
}

fn chain() -> ActorRef<Hands> {
    let next = CHAIN
        .into_iter()
        .rev()
        .fold(None, |next, step| Some(Hands::spawn_with_mailbox(Hands { step, next }, unbounded())));
    next.unwrap()
}

async fn finish(first: &ActorRef<Hands>) {
    first.ask(Handed(State::begin(), None)).await.unwrap().finished();
}

async fn double(doubler: &ActorRef<Doubler>, number: u64) -> u64 {
    doubler.ask(Double(number)).await.unwrap()
}

pub(crate) fn measure(case: &str) -> String {
    let case = case.to_owned();
    run(async move {
        let (first, doubler) = (&chain(), &Doubler::spawn_with_mailbox(Doubler, unbounded()));
        match case.as_str() {
            "chain" => {
                let work = || async {
                    for _ in 0..WIDTH {
                        finish(first).await;
                    }
                };
                time(WIDTH, work).await
            }
            "crowd" => time(WIDTH, || async { drop(join_all((0..WIDTH).map(|_| finish(first))).await) }).await,
            "fan-out" => {
                let work = || async {
                    let doubled = join_all((0..WIDTH as u64).map(|part| double(doubler, part))).await;
                    assert_eq!(doubled.len(), WIDTH);
                };
                time(1, work).await
            }
            "ask" => {
                let work = || async {
                    for number in 0..WIDTH as u64 {
                        assert_eq!(double(doubler, number).await, number * 2);
                    }
                };
                time(WIDTH, work).await
            }
            other => panic!("there is no case {other}"),
        }
    })
}
