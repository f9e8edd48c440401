//! Raw ractor: actors that hand on a message with the port of its reply.

use futures::future::join_all;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};

use crate::measure::{WIDTH, run, time};
use crate::state::{CHAIN, State, Step};

struct Hands;

type Handed = (State, RpcReplyPort<State>);

struct Message(Handed);

impl Actor for Hands {
    type Msg = Message;
    type State = (Step, Option<ActorRef<Message>>);
    type Arguments = Self::State;

    async fn pre_start(&self, _: ActorRef<Message>, made: Self::State) -> Result<Self::State, ActorProcessingErr> {
        Ok(made)
    }

    async fn handle(
        &self,
        _: ActorRef<Message>,
        Message((state, reply)): Message,
        (step, next): &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        let state = step(state);
        match next {
            Some(next) => next.cast(Message((state, reply)))?,
            None => reply.send(state)?,
        }
        Ok(())
    }
}

struct Doubler;

struct Double(u64, RpcReplyPort<u64>);

impl Actor for Doubler {
    type Msg = Double;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Double>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(
        &self,
        _: ActorRef<Double>,
        Double(number, reply): Double,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        reply.send(number * 2)?;
        Ok(())
    }
}

async fn chain() -> ActorRef<Message> {
    let mut next = None;
    for step in CHAIN.into_iter().rev() {
        next = Some(Actor::spawn(None, Hands, (step, next)).await.unwrap().0);
    }
    next.unwrap()
}

async fn finish(first: &ActorRef<Message>) {
    first.call(|reply| Message((State::begin(), reply)), None).await.unwrap().unwrap().finished();
}

async fn double(doubler: &ActorRef<Double>, number: u64) -> u64 {
    doubler.call(|reply| Double(number, reply), None).await.unwrap().unwrap()
}

pub(crate) fn measure(case: &str) -> String {
    let case = case.to_owned();
    run(async move {
        let (first, doubler) = (&chain().await, &Actor::spawn(None, Doubler, ()).await.unwrap().0);
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
