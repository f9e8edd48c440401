//! Rooms of agents with Synapse, a homeserver that others have written. It runs where `CALLBOARD_SYNAPSE` names a python that has it.

use std::path::Path;
use std::sync::Arc;

use callboard::env::Env;
use callboard::messages::AgentName;
use callboard::storage::Memory;
use callboard_channels::matrix::{AccessToken, AgentRooms, AgentRoomsConfig, MatrixState};
use serde_json::{Value, json};

use super::crew::{REQUEST, STATUS, board};
use crate::fake::LIMIT;
use crate::skipping::skip;
use crate::synapse::{Account, Synapse};

/// Makes a room of this type, in which its members may set states, and invites others.
fn room(owner: &Account, kind: &Value, others: &[&Account]) -> String {
    let invite: Vec<&str> = others.iter().map(|account| &*account.id).collect();
    let events = json!({ "com.aiagentchat.role": 0, "m.space.child": 0, "m.space.parent": 0 });
    let body = json!({
        "preset": "private_chat", "invite": invite, "creation_content": kind,
        "power_level_content_override": { "events": events },
    });
    let room = owner.call("POST /_matrix/client/v3/createRoom", &body);
    room["room_id"].as_str().unwrap().to_owned()
}

/// What was answered to an event, the oldest first.
fn answers(account: &Account, room: &str, event: &str) -> Vec<Value> {
    let page = account.get(&format!("v3/rooms/{room}/messages?dir=b&limit=50"));
    let is_answer = |it: &&Value| {
        let related = &it["content"]["m.relates_to"];
        related["event_id"] == event || related["m.in_reply_to"]["event_id"] == event
    };
    page["chunk"].as_array().unwrap().iter().rev().filter(is_answer).map(|it| it["content"].clone()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_visitor_finds_an_agent_by_the_space_of_synapse_and_gives_it_tasks() {
    let Some(python) = std::env::var_os("CALLBOARD_SYNAPSE") else { return skip("there is no Synapse") };
    let synapse = Synapse::start(Path::new(&python));
    let [bot, mut owner, mut ann, mut eve] = ["board", "owner", "ann", "eve"].map(|name| synapse.register(name));
    let space = room(&owner, &json!({ "type": "m.space" }), &[&bot, &ann]);
    let inbox = room(&owner, &json!({}), &[&bot, &ann, &eve]);

    let folder = tempfile::tempdir().unwrap();
    let token = AccessToken::new(&bot.token).unwrap();
    let config = AgentRoomsConfig::new(&synapse.url(), token, folder.path().join("matrix"));
    let rooms = AgentRooms::open(config.agent("writer", &inbox).space(&space).person(&ann.id, "ann")).unwrap();
    let board = board(&Arc::new(Memory::new(Env::system().clock()))).await;
    rooms.start(&board, |_, _| Ok(AgentName::new("laptop").unwrap()));
    let is_set_up = |state: &MatrixState| matches!(state, MatrixState::Reached { unusable, .. } if unusable.is_empty());
    let mut state = rooms.state();
    let set_up = tokio::time::timeout(LIMIT, state.wait_for(is_set_up)).await.is_ok();
    assert!(set_up, "{:?}", rooms.state().borrow());
    // What is set last.
    owner.sees(|event| event["type"] == "m.space.parent" && event["state_key"] == space);

    ann.join(&space);
    let found = ann.get(&format!("v1/rooms/{space}/hierarchy"));
    let is_inbox = |room: &&Value| room["room_id"] == inbox;
    let listed = found["rooms"].as_array().unwrap().iter().find(is_inbox).unwrap_or_else(|| panic!("{found}"));
    assert_eq!(listed["join_rule"], "invite");
    ann.join(&inbox);
    let role = ann.get(&format!("v3/rooms/{inbox}/state/com.aiagentchat.role/"));
    assert_eq!(
        (&role["instance_name"], &role["role"], &role["capabilities"]),
        (&json!("writer"), &json!("author"), &json!(["prose"]))
    );

    let content = json!({ "request_id": "req-1", "from_agent": "owner", "body": "look", "input": "a page" });
    let event = ann.sends(&inbox, REQUEST, &content);
    ann.sees(|it| it["type"] == STATUS && it["content"]["status"] == "complete");
    let statuses = answers(&ann, &inbox, &event);
    let shown =
        |status: &Value| format!("{} {}", status["status"].as_str().unwrap(), status["request_id"].as_str().unwrap());
    assert_eq!(statuses.iter().map(shown).collect::<Vec<_>>(), ["ack req-1", "complete req-1"]);
    assert_eq!((&statuses[1]["body"], &statuses[1]["to_agent"]), (&json!("a page"), &json!("ann")));

    let event = ann.sends(&inbox, "m.room.message", &json!({ "msgtype": "m.text", "body": "write a poem" }));
    ann.sees(|it| it["content"][STATUS]["status"] == "complete");
    let replies = answers(&ann, &inbox, &event);
    assert_eq!((replies.len(), &replies[1]["body"]), (2, &json!("write a poem")));

    eve.join(&inbox);
    let event = eve.sends(&inbox, REQUEST, &json!({ "body": "look", "from_agent": "ann" }));
    eve.sees(|it| it["type"] == STATUS && it["content"]["status"] == "fail");
    let statuses = answers(&eve, &inbox, &event);
    assert_eq!((statuses.len(), &statuses[0]["detail"]), (1, &json!("this account may not give tasks here")));
    assert_eq!(board.runs().await.unwrap().len(), 2);
    drop(rooms);
    board.shutdown().await;
}
