//! Raw ractor actors, for comparison.

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};

/// Answers a number with its double.
pub(crate) struct Doubler;

pub(crate) struct Double(pub(crate) u64, pub(crate) RpcReplyPort<u64>);

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
        let _ = reply.send(number * 2);
        Ok(())
    }
}

pub(crate) async fn doubler() -> ActorRef<Double> {
    Actor::spawn(None, Doubler, ()).await.unwrap().0
}

/// Calls an actor `count` times, one after the other.
pub(crate) async fn call(actor: ActorRef<Double>, count: usize) {
    for number in 0..count as u64 {
        let answer = actor.call(|reply| Double(number, reply), None).await.unwrap();
        assert_eq!(answer.unwrap(), number * 2);
    }
}
