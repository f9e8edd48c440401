//! The handler of decisions.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use callboard::messages::PendingId;
use callboard_channels::webhooks::{Received, Refused as NotDecided, SignedDelivery, WebhookReceiver};
use serde_json::{Value, json};

use crate::audit::{Peer, Sender};
use crate::body::Name;
use crate::context::{Context, Shared};
use crate::deliveries::{MAX_A_MINUTE, MAX_ARRIVING, Refused, Unsigned, payload, read, unsigned};
use crate::problem::{Problem, ProblemCode};

/// Where decisions are sent to, without the name of the webhook.
const PATH: &str = "/v1/channels/webhooks";

/// Decides by a signed delivery.
pub(super) async fn receive(
    State(context): Shared,
    Name(name): Name,
    request: Request,
) -> Result<Json<Value>, Problem> {
    let address = request.extensions().get::<Peer>().and_then(|peer| peer.address);
    let sender = request.extensions().get::<Sender>().cloned().unwrap_or_default();
    let (parts, body) = request.into_parts();
    let outer = Unsigned::of(&context, (PATH, &name), address, Some(&sender));
    let checked = async {
        let _arriving = context.rates.arrive(address, MAX_ARRIVING)?;
        let body = read(&parts.headers, body).await?;
        Ok((signed(&context, &name, &parts.headers, &body)?, body))
    };
    let ((receiver, delivery), body) = match checked.await {
        Ok(checked) => checked,
        Err(refused) => return Err(outer.refused(refused)),
    };
    outer.accept();
    let payload = payload(&parts.headers, &body);
    let person = payload.as_ref().ok().and_then(|payload| receiver.person(&delivery, payload));
    sender.is_webhook(&format!("channel webhooks/{name}"), person.as_ref());
    context.rates.count_webhook(&format!("channels/{name}"), MAX_A_MINUTE, context.now())?;
    let payload = payload?;
    let text = |field: &str| payload.get(field).and_then(Value::as_str).unwrap_or_default();
    sender.decides(text("response"), text("reason"));
    if let Some(why) = (context.refuses_decisions)() {
        return Err(Problem::new(ProblemCode::DecisionsRefused, why));
    }
    // In a task of its own: a client that leaves ends the handler, and the id of the delivery is used up.
    let decided = tokio::spawn(async move { receiver.decide(&delivery, &payload).await });
    match decided.await.map_err(|error| Problem::internal(&error))? {
        Ok(Received { approval, person, is_decided, outcome, .. }) => {
            let approval = PendingId::Approval(approval).to_string();
            let answer = json!({ "approval": approval, "by": person, "decided": is_decided, "outcome": outcome });
            sender.came_to(&answer);
            Ok(Json(answer))
        }
        Err(refused) => {
            sender.is_refused(&refused.to_string());
            Err(problem(refused))
        }
    }
}

/// The delivery, if it is signed.
fn signed(
    context: &Context,
    name: &str,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<(WebhookReceiver, SignedDelivery), Refused> {
    let receiver = context.receiver.clone().ok_or_else(|| unsigned("there are no webhooks for decisions"))?;
    let delivery = receiver.check(name, headers, body, context.now()).map_err(unsigned)?;
    Ok((receiver, delivery))
}

fn problem(refused: NotDecided) -> Problem {
    let code = match &refused {
        NotDecided::Malformed(_) => ProblemCode::BadRequest,
        NotDecided::Unlisted => ProblemCode::DecisionsRefused,
        NotDecided::Unknown => ProblemCode::NotFound,
        NotDecided::Repeated | NotDecided::Closed(_) => ProblemCode::Conflict,
        NotDecided::TooMany => ProblemCode::Overloaded,
        NotDecided::Answer(_) | NotDecided::Unavailable => ProblemCode::Unavailable,
        // None so far.
        _ => ProblemCode::Refused,
    };
    match refused {
        NotDecided::Answer(error) => error.into(),
        refused => Problem::new(code, refused.to_string()),
    }
}
