//! Bytes that nobody would send: records, names, JSON, workflows and templates that are damaged, cut, spliced and made up, and files of agents. Reading them ends in a
//! value or an error, never in a panic, and a value that is read is written back as the same one.
//!
//! Each target runs for `CALLBOARD_SECONDS` (10). An input that fails is printed in hexadecimal; kept as
//! `tests/simulation/fuzz/kept/TARGET-NAME.hex` it is tried first in every run.

mod agents;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use callboard::actors::approvals::{Card, Rows};
use callboard::messages::{
    Action, ActionKind, AgentName, Chain, Command, Envelope, Failure, FailureKind, Flow, Json, Limits, Outcome, Plan,
    Rationale, Reducer, RequestId, RunEvent, RunId, Schema, SendTo, State, StateRules, Submission, Task, TraceId,
    TurnId, Verdict, visible_lines,
};
use callboard::storage::{Append, Durability, Journal, Key, Memory, Put, Storage, Transfer};
use callboard::supervision::runs::{Diff, Follower, Fork, Replay, ReplayError, Run};
use callboard::testing::conformance::ManualClock;
use callboard::workflow::{Defects, Node, Workflow};
use futures::FutureExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::campaigns::{Campaign, hex_files, seconds};

/// The length of the header of a stored record, in bytes.
const HEADER: usize = 14;

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Changes an input in a few places.
fn mutated(corpus: &[Vec<u8>], campaign: &Campaign) -> Vec<u8> {
    let mut bytes = corpus[campaign.below(corpus.len())].clone();
    for _ in 0..=campaign.below(6) {
        let at = campaign.below(bytes.len() + 1);
        let end = at + campaign.below((bytes.len() - at).min(40) + 1);
        match campaign.below(8) {
            0 if at < bytes.len() => bytes[at] ^= 1 << campaign.below(8),
            1 if at < bytes.len() => bytes[at] = campaign.random() as u8,
            2 if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xfb, 0xfc, 0xfd, 0xff][campaign.below(8)],
            3 => drop(bytes.drain(at..end)),
            4 => {
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
            5 => {
                let other = &corpus[campaign.below(corpus.len())];
                let from = campaign.below(other.len() + 1);
                let to = from + campaign.below((other.len() - from).min(60) + 1);
                bytes.splice(at..end, other[from..to].iter().copied());
            }
            6 => bytes.truncate(at),
            _ => bytes.insert(at, campaign.random() as u8),
        }
    }
    bytes
}

/// Tries what was kept, then what chance makes of the corpus, until the time is over.
fn fuzz(target: &'static str, corpus: &[Vec<u8>], read: impl Fn(&[u8]) -> Result<bool, String>) {
    let mut campaign = Campaign::begin("fuzz");
    let mut accepted = 0_u64;
    let mut attempt = |campaign: &mut Campaign, input: &[u8]| {
        let read = catch_unwind(AssertUnwindSafe(|| read(input))).unwrap_or_else(|_| Err("it panicked".to_owned()));
        campaign.count(match read {
            Ok(is_accepted) => {
                accepted += u64::from(is_accepted);
                Ok(())
            }
            Err(error) => Err(format!("{target}: {error}: {}", to_hex(input))),
        });
    };
    hex_files("simulation/fuzz/kept", target).iter().chain(corpus).for_each(|input| attempt(&mut campaign, input));
    while campaign.elapsed() < seconds(2) && !campaign.has_failed() {
        let input = mutated(corpus, &campaign);
        attempt(&mut campaign, &input);
    }
    assert!(accepted > 0, "not one input was read");
    campaign.end(format_args!("{target}, {accepted} of them read as something"));
}

/// A record whose header is right, around any payload.
fn record(schema: u16, payload: &[u8]) -> Vec<u8> {
    let mut record = vec![0xCB, 0x1D];
    record.extend_from_slice(&schema.to_le_bytes());
    record.extend_from_slice(&1_u16.to_le_bytes());
    record.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    let begin = u32::from_le_bytes(record[2..6].try_into().unwrap());
    let mut hasher = crc32fast::Hasher::new_with_initial(begin);
    hasher.update(payload);
    record.extend_from_slice(&hasher.finalize().to_le_bytes());
    record.extend_from_slice(payload);
    record
}

fn schema_of(record: &[u8]) -> u16 {
    u16::from_le_bytes([record[2], record[3]])
}

#[test]
fn any_bytes_are_a_record_or_an_error() {
    let mut corpus = hex_files("golden", "");
    let schema = schema_of(&hex_files("golden", "journal-record")[0]);
    corpus.extend([Vec::new(), vec![0xCB], record(schema, &[])]);
    fuzz("codec", &corpus, |bytes| {
        let payload = &bytes[HEADER.min(bytes.len())..];
        for bytes in [bytes.to_vec(), record(schema, payload)] {
            if let Some(events) = journal_of(&[bytes]) {
                let written = record_of(&events);
                let again = journal_of(std::slice::from_ref(&written)).map(|events| record_of(&events));
                return if again == Some(written) {
                    Ok(true)
                } else {
                    Err("it is read back as something else".to_owned())
                };
            }
        }
        Ok(false)
    });
}

/// The record of these events.
fn record_of(events: &[RunEvent]) -> Vec<u8> {
    let (run, storage) = (RunId(Uuid::from_u128(8)), Arc::new(Memory::default()));
    let journal = Journal::new(Arc::clone(&storage) as Arc<dyn Storage>);
    journal.begin(run, "board", events, Durability::Memory).now_or_never().unwrap().unwrap();
    storage.read(&Journal::stream(run), 1, 1).now_or_never().unwrap().unwrap()[0].payload.to_vec()
}

fn journal_of(records: &[Vec<u8>]) -> Option<Vec<RunEvent>> {
    let run = RunId(Uuid::from_u128(7));
    let storage = Arc::new(Memory::default());
    for (expected, payload) in (0..).zip(records) {
        let (stream, payload) = (Journal::stream(run), payload.as_slice().into());
        let append = Append { durability: Durability::Memory, ..Append::new(stream, expected, payload) };
        storage.append(append).now_or_never().unwrap().unwrap();
    }
    Journal::new(storage).events(run).now_or_never().unwrap().ok()
}

/// The header is made right again: reading must withstand a defective writer, not only to a disk.
#[test]
fn any_record_of_a_journal_is_read_and_folded_or_an_error() {
    let golden = hex_files("golden", "journal-record");
    let schema = schema_of(&golden[0]);
    let payloads: Vec<Vec<u8>> = golden.iter().map(|record| record[HEADER..].to_vec()).collect();
    fuzz("journal", &payloads, |payload| {
        let Some(events) = journal_of(&[record(schema, payload)]) else { return Ok(false) };
        let _ = record_of(&events);
        let _ = Run::of(events, &StateRules::default());
        Ok(true)
    });
}

/// Every event there is, in any order and any number, about any turn: two bytes of input each.
fn events_of(events: &[RunEvent], which: &[u8]) -> Vec<RunEvent> {
    let chosen = which.chunks_exact(2).map(|bytes| {
        let (event, about) = (&events[usize::from(bytes[0]) % events.len()], bytes[1]);
        let mut json = serde_json::to_value(event).unwrap();
        if let (Some(fields), 1..) = (json.as_object_mut().and_then(|json| json.values_mut().next()), about) {
            for (field, number) in [("turn", about % 8), ("ordinal", about / 8 % 4)] {
                if fields.get(field).is_some_and(Value::is_u64) {
                    fields[field] = number.into();
                }
            }
        }
        serde_json::from_value(json).unwrap()
    });
    std::iter::once(events[0].clone()).chain(chosen).collect()
}

fn orders_of_events(events: &[RunEvent]) -> Vec<Vec<u8>> {
    let as_they_are = (0..events.len() as u8).flat_map(|number| [number, 0]).collect();
    vec![as_they_are, vec![0, 0, 1, 0, 2, 0, 3, 0], (0..36).map(|at| at * 7).collect()]
}

#[test]
fn any_order_of_events_folds() {
    let events = journal_of(&hex_files("golden", "journal-record")).unwrap();
    fuzz("fold", &orders_of_events(&events), |which| {
        Ok(Run::of(events_of(&events, which), &StateRules::default()).is_some())
    });
}

/// What looks into journals, and writes new ones from them: all of it for each.
#[test]
fn any_order_of_events_is_replayed_compared_and_forked() {
    let events = journal_of(&hex_files("golden", "journal-record")).unwrap();
    let rules = StateRules::default();
    let plain = Replay::of(vec![events[0].clone()], &rules).unwrap();
    fuzz("replay", &orders_of_events(&events), |which| {
        let mut history = events_of(&events, which);
        let is_submission = |event: &RunEvent| matches!(event, RunEvent::Submitted(_));
        let is_joined = history.iter().skip(1).any(is_submission);
        if is_joined != matches!(Replay::of(history.clone(), &rules), Err(ReplayError::Joined { .. })) {
            return Err("a history of two runs is replayed, or one of one run is not".to_owned());
        }
        let mut place = 0;
        history.retain(|event| {
            place += 1;
            place == 1 || !is_submission(event)
        });
        let replay = Replay::of(history.clone(), &rules).map_err(|error| error.to_string())?;
        if replay.result().map(|result| &result.outcome)
            != Run::of(history.clone(), &rules).unwrap().result().map(|result| &result.outcome)
        {
            return Err("the replay comes to another result than the fold".to_owned());
        }
        if !Diff::of(&replay, &replay).is_empty() {
            return Err("it differs from itself".to_owned());
        }
        let shown = format!("{}{}", Diff::of(&plain, &replay), Flow::of(&history, Run::late_turns(&history, &rules)));
        let shown = replay.steps().iter().fold(shown, |shown, step| shown + &step.event.to_string() + "\n");
        if visible_lines(&shown) != shown {
            return Err("it is shown with what deceives".to_owned());
        }
        let mut has_forked = false;
        for turn in replay.turns() {
            replay.before_turn(turn.number).ok_or("a turn is not found")?;
            let _ = replay.after_turn(turn.number);
            let (fork, id) =
                (Fork::new().input("new").set("note", 1), (RunId(Uuid::from_u128(9)), replay.submission().at));
            let Ok(forked) = fork.events(&history, turn.number, id, &rules) else { continue };
            let forked = Replay::of(forked, &rules).map_err(|error| format!("the fork: {error}"))?;
            let last = forked.steps().last().unwrap().event.turn().unwrap();
            let begun = forked.turn(last).ok_or("the fork has not the turn that it begins at")?;
            if begun.input != "new" || begun.closed.is_some() || begun.agent != turn.agent {
                return Err(format!("turn {} does not start again in the fork", turn.number));
            }
            has_forked = true;
        }
        Ok(has_forked)
    });
}

#[test]
fn any_name_is_taken_as_it_is_or_refused() {
    let names =
        ["a", "planner", "a-b_c.d", "ä", "日本", "a\u{202e}b", "a\u{200b}", "\u{1b}[31m", "7", "", "a b", "A.B"];
    let ids = ["00000000-0000-0000-0000-000000000007", "{0192f0c1-0000-7000-8000-000000000000}", "urn:uuid:0"];
    let keys =
        [Key::new(["run", "1"]), Key::new(["", "a\0b", "\u{1}"]), Key::new([])].map(|key| key.as_bytes().to_vec());
    let corpus: Vec<Vec<u8>> = names.iter().chain(&ids).map(|name| name.as_bytes().to_vec()).chain(keys).collect();
    fuzz("names", &corpus, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let name = AgentName::new(&text);
        if name.as_ref().is_ok_and(|name| name.as_str() != text) {
            return Err("a name was changed".to_owned());
        }
        if let Ok(run) = text.parse::<RunId>()
            && run.to_string().parse() != Ok(run)
        {
            return Err("an id is not read back".to_owned());
        }
        if let Some(key) = Key::from_bytes(bytes) {
            let segments = key.segments();
            let again = Key::new(segments.iter().map(String::as_str));
            if key.as_bytes() != bytes || again != key {
                return Err(format!("the key {key} is read back as {again}"));
            }
        }
        Ok(name.is_ok())
    });
}

/// Reads JSON as one type; what is read is read back as the same.
fn read_json<T: DeserializeOwned + Serialize + PartialEq>(text: &[u8]) -> Result<bool, String> {
    let Ok(value) = serde_json::from_slice::<T>(text) else { return Ok(false) };
    let written = serde_json::to_vec(&value).map_err(|error| format!("what was read cannot be written: {error}"))?;
    match serde_json::from_slice::<T>(&written) {
        Ok(again) if again == value => Ok(true),
        Ok(_) => Err(format!("it is read back as something else: {}", String::from_utf8_lossy(&written))),
        Err(error) => Err(format!("it is not read back: {error}: {}", String::from_utf8_lossy(&written))),
    }
}

/// A schema, and writes by its rules: lists of a channel, a value, and whether it overwrites.
#[test]
fn any_update_by_any_schema_is_applied_or_refused() {
    type Writes = (Schema, Vec<(String, Value, bool)>);
    let schema = |schema: Schema| serde_json::to_value(schema.channel("votes", Reducer::Sum)).unwrap();
    let writes = json!([["messages", "a", false], ["votes", 1, false], ["artifacts", { "a": { "b": null } }, false]]);
    let others =
        json!([["plan", [1], true], ["context", { "artifacts_created": [1] }, false], ["votes", 1e300, false]]);
    let corpus: Vec<Vec<u8>> = [json!([schema(Schema::swarm()), writes]), json!([schema(Schema::strict()), others])]
        .iter()
        .map(|input| input.to_string().into_bytes())
        .collect();
    fuzz("state", &corpus, |text| {
        let Ok((schema, writes)) = serde_json::from_slice::<Writes>(text) else { return Ok(false) };
        let rules = StateRules::new(schema);
        let (mut state, mut is_applied) = (State::default(), false);
        for (channel, value, overwrites) in writes {
            let command = Command::new();
            let command = if overwrites { command.overwrite(&channel, value) } else { command.with(&channel, value) };
            let before = state.to_json();
            match state.apply(&command.update, &rules) {
                Ok(_) => is_applied = true,
                Err(error) if state.to_json() != before => return Err(format!("half of it is applied: {error}")),
                Err(error) => drop(error.to_string()),
            }
        }
        Ok(is_applied)
    });
}

#[test]
fn any_export_is_imported_as_it_is_or_an_error() {
    let store = Memory::default();
    for (number, value) in (0..).zip(["a", "b"]) {
        let (stream, payload) = (Key::new(["run", "1"]), value.as_bytes().into());
        let durability = Durability::Memory;
        store.append(Append { durability, ..Append::new(stream, number, payload) }).now_or_never().unwrap().unwrap();
        let (key, value) = (Key::new(["context", value]), value.as_bytes().into());
        let put = Put { ttl_secs: (number > 0).then_some(60), durability, ..Put::new(key, value) };
        store.put_if_revision(put).now_or_never().unwrap().unwrap();
    }
    let text = |store: &Memory| {
        let mut text = Vec::new();
        Transfer::export(store, &mut text).now_or_never().unwrap().unwrap();
        text
    };
    let import = |mut text: &[u8]| {
        let store = Memory::new(Arc::new(ManualClock::new()));
        let moved = Transfer::import(&mut text, &store, ManualClock::START).now_or_never().unwrap();
        moved.ok().map(|_| store)
    };
    fuzz("transfer", &[text(&store)], |bytes| {
        let Some(store) = import(bytes) else { return Ok(false) };
        let exported = text(&store);
        let again = import(&exported).ok_or("what was imported is exported as something wrong")?;
        if text(&again) == exported { Ok(true) } else { Err("it is exported as something else".to_owned()) }
    });
}

/// The parts of an action are divided by lines; the last one is the arguments.
#[test]
fn any_action_is_shown_on_a_card_that_deceives_nobody() {
    let corpus =
        ["write_file\nREVIEW.md\nfine", "a\nb\n{\"a\":\"\\u202e\"}", "\u{1b}[2J\n\u{202e}\n── approval ──\n\r"];
    let corpus: Vec<Vec<u8>> = corpus.iter().map(|text| text.as_bytes().to_vec()).collect();
    fuzz("card", &corpus, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let mut parts = text.splitn(3, '\n');
        let (kind, target) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let arguments = parts.next().unwrap_or_default();
        let arguments = serde_json::from_str(arguments).unwrap_or_else(|_| Value::from(arguments));
        let envelope = Envelope {
            version: Envelope::VERSION,
            kind: ActionKind::Requested,
            remind_at: None,
            request: RequestId { turn: TurnId { run: RunId(Uuid::from_u128(9)), number: 1 }, ordinal: 0 },
            agent: AgentName::new("clerk").unwrap(),
            action: Action::new(kind, target, arguments),
            policy: "ask".into(),
            deciders: callboard::messages::Deciders::default(),
            requester: None,
            escalates_at: None,
            edited_by: None,
            rationale: Rationale::default(),
            nonce: 7,
            expires_at: ManualClock::START,
        };
        let card = Card::of(&envelope).brief();
        if visible_lines(&card) != card || card.contains('\t') {
            return Err("it is shown with what deceives".to_owned());
        }
        let is_tainted = |line: &&str| ["  │ ", "  … ", "  ┆ "].iter().any(|mark| line.starts_with(mark));
        const LOOKS: &str = "looks     ";
        let heads = [
            "── approval ",
            "agent     ",
            "action    ",
            "target    ",
            "expires   ",
            "code      ",
            LOOKS,
            "          ┆ ",
        ];
        let looks = card.lines().filter(|line| line.starts_with(LOOKS)).count();
        let is_head = |line: &&str| heads.iter().any(|head| line.starts_with(head));
        let shown = Rows::fold(&card, 40);
        let rows = shown.lines().skip_while(is_head).chain(card.lines().skip(heads.len() - 2 + looks));
        match rows.into_iter().find(|line| !is_tainted(line)) {
            Some(line) => Err(format!("the arguments have a line of their own: {line}")),
            None => Ok(true),
        }
    });
}

#[test]
fn any_json_is_a_value_or_an_error() {
    let task = serde_json::to_vec(&Task::new("fix it").to("coder").input(Json::from("x"))).unwrap();
    let command = serde_json::to_vec(&Command::output("done").with("score", 7).goto("reviewer")).unwrap();
    let limits = serde_json::to_vec(&Limits::default()).unwrap();
    let schema = serde_json::to_vec(&Schema::swarm()).unwrap();
    let deep = ["[".repeat(130), "]".repeat(130)].concat().into_bytes();
    let odd = [
        &br#"{"a":1e400,"b":-0.0,"c":1.7976931348623157e308,"d":18446744073709551616}"#[..],
        br#""\ud800""#,
        b"[1.0,0.1]",
    ];
    let mut corpus = vec![task, command, limits, schema, deep];
    corpus.extend(odd.iter().map(|text| text.to_vec()));
    fuzz("json", &corpus, |text| {
        let read =
            [read_json::<Json>, read_json::<Task>, read_json::<Command>, read_json::<Limits>, read_json::<Schema>];
        read.iter().try_fold(false, |any, read| Ok(read(text)? || any))
    });
}

const FLOW: &str = r#"
[workflow]
name = "everything"
output = { verdict = "{{ review.output }}", notes = "{{ state.notes }}" }
channels = { notes = "append", best = { reducer = "last_value", schema = { type = "string" } } }

[[workflow.tasks]]
name = "plan"
agent = "planner"
input = "Plan {{ topic }}."
save = "notes"

[[workflow.tasks]]
name = "each"
depends_on = ["plan"]
map = { over = "plan.output.files", max = 9 }
tasks = [{ name = "look", agent = "x", input = "{{ item }} {{ index }}" }, { name = "tell", kind = "join", depends_on = ["look"] }]

[[workflow.tasks]]
name = "review"
agent = "reviewer"
depends_on = ["plan", { task = "each", on = "failure" }, { task = "each", when = "each.output | length > 2" }]
join = "settled"
goto = [{ to = "plan", max = 3 }, "done"]
attempts = 2
timeout = "3s"
compensate = "undo"
interrupt = "before"

[[workflow.tasks]]
name = "polish"
agent = "x"
depends_on = ["review"]
when = "not state.best"
loop = { until = { predicate = "is_good" }, max = 4, at_max = "stop" }

[[workflow.tasks]]
name = "done"
kind = "join"
depends_on = ["polish"]
"#;

const LINES: [&str; 5] = [
    "a -> (b | c -> d) -> any(e, f) -> g",
    "workflow \"x\": plan(agent=\"p\", input={a: [1, true, null, \"{{ topic }}\"]}) -> loop(until=\"state.x > 3\", max=5) { b -> c }",
    "fetch catch { cache } -> if(\"fetch.output\") { a } else if(predicate(\"p\")) { b(when=\"1\") } else { c } -> at_least(2, x, y, z)",
    "m: map(over=\"input\", max=9) { k(input=\"{{ item }}\") } -> g: { h -> j: join } -> r(goto=[back(\"h\", 3), \"s\"]) -> s # end",
    "settled(a, b) -> r: block(timeout=\"2h\", output=\"{{ a.output }}\") { t(attempts=3, save=\"n\", interrupt=\"before\") }",
];

/// Checks what is reported of it: nothing in it deceives, and it is not long.
fn reported<T>(read: Result<T, Defects>) -> Result<Option<T>, String> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(defects) => {
            let reported = defects.to_string();
            if visible_lines(&reported) != reported {
                return Err(format!("it is reported with what deceives: {reported:?}"));
            }
            if reported.is_empty() || reported.len() > 200_000 {
                return Err(format!("{} bytes are reported", reported.len()));
            }
            Ok(None)
        }
    }
}

#[test]
fn any_toml_is_a_workflow_or_refused() {
    let small = "[workflow]\nname = \"w\"\ntasks = [{ name = \"a\", agent = \"x\" }]".to_owned();
    fuzz("toml", &[FLOW, &small].map(|text| text.as_bytes().to_vec()), |bytes| {
        let read = reported(Workflow::reader().toml_bytes("flow.toml", bytes))?;
        // What was made of a text is plain data that a journal holds.
        let Some(workflow) = read else { return Ok(false) };
        let again: Plan = serde_json::from_str(&serde_json::to_string(&**workflow.plan()).unwrap()).unwrap();
        if again == **workflow.plan() { Ok(true) } else { Err("its plan is read back as something else".to_owned()) }
    });
}

#[test]
fn any_line_is_a_workflow_or_refused_and_is_formatted_as_the_same() {
    let corpus = LINES.map(|line| line.as_bytes().to_vec());
    fuzz("line", &corpus, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let read = reported(Workflow::from_line("line", &text))?;
        let Some(formatted) = reported(Workflow::formatted("line", &text))? else {
            return if read.is_none() { Ok(false) } else { Err("it is read, and cannot be formatted".to_owned()) };
        };
        if Workflow::formatted("line", &formatted).as_deref() != Ok(&formatted) {
            return Err(format!("it is formatted again as something else: {formatted:?}"));
        }
        let plan = |workflow: &Workflow| (**workflow.plan()).clone();
        match (&read, Workflow::from_line("line", &formatted)) {
            (Some(read), Ok(again)) if plan(read) == plan(&again) => Ok(true),
            (None, Err(_)) => Ok(true),
            (Some(_) | None, Ok(_) | Err(_)) => Err(format!("it is formatted as something else: {formatted:?}")),
        }
    });
}

/// The run of a plan whose turns end in any way: it ends, and its work is bounded.
fn run_of(plan: Arc<Plan>, input: &Value, ways: &[u8]) -> Option<Run> {
    let agent = AgentName::new("x").unwrap();
    let at = ManualClock::START;
    let cast = plan.cast().iter().map(|_| agent.clone()).collect();
    let task = Task::new("x").input(input.clone()).plan(plan);
    let (run, trace) = (RunId(Uuid::from_u128(7)), TraceId(Uuid::from_u128(8)));
    let submission = Submission { run, trace, task, agent: agent.clone(), cast, chain: Chain::default(), at };
    let mut follower = Follower::new(StateRules::default());
    let step = |follower: &mut Follower, event| {
        let _ = follower.take(follower.next_sequence(), &event);
    };
    step(&mut follower, RunEvent::Submitted(Arc::new(submission)));
    for way in ways.iter().chain(std::iter::repeat_n(&0, 300)) {
        let open: Vec<u32> = follower.run()?.open_turns().collect();
        if open.is_empty() {
            break;
        }
        let turn = open[usize::from(*way >> 3) % open.len()];
        let node = follower.run()?.node_of(turn);
        let agent = agent.clone();
        let command = match way & 7 {
            0 => Command::output(json!({ "files": [1, 2], "text": "{{ state }}" })),
            1..=2 => Command::output(*way).with("notes", *way),
            3 => Command::output(*way).with("best", "x"),
            4 => Command::output(node.unwrap_or_default()).goto("done"),
            5 => Command::new().goto_many([SendTo::new("plan", 1), SendTo::new("done", 2), SendTo::new("done", 3)]),
            6 => Command::output("end").end(),
            _ => {
                let failure = Failure::new(FailureKind::Terminal, "no");
                step(&mut follower, RunEvent::TurnFailed { turn, agent, input: Json::null(), attempt: 1, failure, at });
                continue;
            }
        };
        let (command, verdict) = (Arc::new(command), Verdict::Nothing);
        step(&mut follower, RunEvent::TurnEnded { turn, agent, attempt: 1, command, verdict, at });
        let interrupted = follower.run()?.open_turns().next();
        if let Some(interrupted) = interrupted {
            let (input, update, by) = (None, Default::default(), "ann".into());
            step(&mut follower, RunEvent::Resumed { turn: interrupted, input, update, by, at });
        }
    }
    follower.run().cloned()
}

/// A plan that nobody has checked, as an untrusted caller may submit it: what passes is run to its end. Before a line break, the
/// ways in which turns end.
#[test]
fn any_plan_is_refused_or_runs_to_its_end() {
    let mut texts = vec![Workflow::from_toml("flow", FLOW).unwrap()];
    texts.extend(LINES.iter().filter_map(|line| Workflow::from_line("line", line).ok()));
    let ways = [&[0; 8][..], &[4, 7, 12, 33, 5, 6, 200, 100], &[3, 3, 7]];
    let corpus: Vec<Vec<u8>> = texts
        .iter()
        .zip(ways.iter().cycle())
        .map(|(workflow, ways)| {
            let plan = serde_json::to_vec(&**workflow.plan()).unwrap();
            [ways, &b"\n"[..], &plan].concat()
        })
        .collect();
    fuzz("plan", &corpus, |bytes| {
        let mut parts = bytes.splitn(2, |byte| *byte == b'\n');
        let (ways, plan) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let Ok(plan) = serde_json::from_slice::<Plan>(plan) else { return Ok(false) };
        let input = json!({ "topic": "{{ x }}", "list": [1, [2], {}] });
        let run = run_of(Arc::new(plan), &input, ways).ok_or("it is no run")?;
        match run.result() {
            Some(_) => Ok(true),
            None if run.open_turns().next().is_none() => Err("it has not ended, and nobody works".to_owned()),
            None => Ok(true),
        }
    });
}

/// A template, and after a line break the value that it reads.
#[test]
fn any_template_gives_a_value_or_an_error() {
    let templates = [
        "Look at {{ x.text }}: {% for y in x.list %}{{ loop.index }}{{ y | upper }}{% else %}none{% endfor %}",
        "{{ x.list | length > 2 and not x.text }}",
        "{{ x.text[:3] ~ (x.list | first | default('z')) }}{# a #}{% set q = namespace(n=1) %}{{ q.n }}",
        "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(x) }}{% for a in range(9) %}{% for b in range(9) %}{{ a*b }}{% endfor %}{% endfor %}",
        "{{ {'a': [x, 1.5, none, true]} | tojson }}{{ x.text | replace('a', 'b') | indent(4) }}",
    ];
    let values = [r#"{"text":"{{ state }}","list":["a","b"]}"#, "[1,2]", "\"\u{202e}\"", "1e308"];
    let corpus: Vec<Vec<u8>> = templates
        .iter()
        .zip(values.iter().cycle())
        .map(|(template, value)| format!("{value}\n{template}").into_bytes())
        .collect();
    fuzz("template", &corpus, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let (value, template) = text.split_once('\n').unwrap_or(("null", &text));
        let Ok(value) = serde_json::from_str::<Value>(value) else { return Ok(false) };
        let workflow = Workflow::builder("w").node(Node::agent("a", "x").input(template));
        let Some(workflow) = reported(workflow.build())? else { return Ok(false) };
        let input: Map<String, Value> = workflow.inputs().map(|field| (field.to_owned(), value.clone())).collect();
        let run = run_of(Arc::clone(workflow.plan()), &Value::Object(input), &[]).ok_or("it is no run")?;
        Ok(matches!(run.result().map(|result| &result.outcome), Some(Outcome::Finished)))
    });
}
