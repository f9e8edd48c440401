//! What a person finds in a database that is not as it should be: sessions and rows that cannot be read, and rights that are missing.

use serde_json::{Value, json};
use tokio_postgres::types::ToSql;

use callboard::storage::Key;

use crate::postgres::connect;

use crate::support::serving::Serving;

use super::database::{boards, command_on, database, done, on, project, sent, serve, until};

/// What these statements do in the database.
fn execute(store: &str, statements: &str, parameters: &[&[u8]]) {
    let executed = async {
        let client = connect(store).await;
        let parameters: Vec<&(dyn ToSql + Sync)> = parameters.iter().map(|bytes| bytes as _).collect();
        client.execute(statements, &parameters).await.unwrap();
    };
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(executed);
}

#[test]
fn boards_of_other_builds_are_shown_with_what_to_do() {
    let store = database("builds", "postgres");
    let a = project("coder", "end(turn, 'done')\n");
    done(&on(&a, &store, &["store", "migrate"]));
    let about = json!({ "id": "other", "build": "9.1.0", "letters": 2, "agents": [{ "name": "painter" }] }).to_string();
    let begin = async {
        let client = connect(&store).await;
        let statement = "SELECT callboard.begin_session($1, $2, 3600000, 'x', NULL)";
        for (name, about) in [("newer", &*about), ("odd", "as nobody reads it")] {
            client.query(statement, &[&name.as_bytes(), &about.as_bytes()]).await.unwrap();
        }
    };
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(begin);
    let first = serve(&a, &store, "a");
    let named = "boards of these builds cannot read each other's letters, and ask each other nothing: newer (build 9.1.0, form 2), a (build \
                 0.1.0, form 1); have all run the newest build\n";
    let odd = "the session of board odd cannot be read: ";
    let shown = done(&on(&a, &store, &["boards"])).out.clone();
    assert!(shown.contains(named) && shown.lines().last().unwrap().starts_with(odd), "{shown}");
    let rows: Vec<Value> = on(&a, &store, &["boards", "--json"]).parsed();
    assert_eq!(rows.iter().map(|row| &row["letters"]).collect::<Vec<_>>(), [2, 0, 1]);
    let refused = on(&a, &store, &["send", "painter", "work"]);
    assert_eq!(refused.code, Some(3), "{}", refused.error);
    let stopped = first.stop();
    assert!(stopped.error.contains(named.trim_end()) && stopped.error.contains(odd), "{}", stopped.error);
    execute(&store, "DELETE FROM callboard.sessions WHERE name = $1", &[b"newer"]);
    // One that nobody can read says nothing about the others.
    let second = serve(&a, &store, "a");
    let shown = done(&on(&a, &store, &["boards"])).out.clone();
    assert!(!shown.contains("boards of these builds") && shown.lines().last().unwrap().starts_with(odd), "{shown}");
    second.stop();
}

#[test]
fn a_check_of_a_store_reports_rows_that_cannot_be_read() {
    let store = database("garbage", "postgres");
    let a = project("coder", "end(turn, 'done')\n");
    done(&on(&a, &store, &["store", "migrate"]));
    assert!(done(&on(&a, &store, &["store", "check"])).out.contains("0 runs, no damage"));
    for key in [&["open", "nobody"][..], &["mail", "board", "019a0000000070008000000000000001"]] {
        let key = Key::new(key.iter().copied());
        execute(&store, "INSERT INTO callboard.entries (key, revision, value) VALUES ($1, 1, 'x')", &[key.as_bytes()]);
    }
    let checked = on(&a, &store, &["store", "check"]);
    assert_eq!(checked.code, Some(1), "{}", checked.error);
    for wanted in ["its key names no run", "these bytes are not a callboard record", "0 runs, 2 damaged"] {
        assert!(checked.out.contains(wanted), "{wanted}: {}", checked.out);
    }
    let rows: Vec<Value> = on(&a, &store, &["store", "check", "--json"]).parsed();
    let notes = rows.iter().find_map(|row| row["notes"].as_array()).unwrap();
    assert_eq!(notes[0], json!({ "key": "open/nobody", "error": "its key names no run" }));
}

#[test]
fn rows_whose_names_are_not_those_of_keys_stop_no_board_and_are_reported_once() {
    let store = database("unnamed", "postgres");
    let a = project("coder", "end(turn, 'done')\n");
    done(&on(&a, &store, &["store", "migrate"]));
    let families: [&[&str]; 3] = [&["open"], &["listed"], &["mail", "gone"]];
    let names = families.map(|family| [Key::new(family.iter().copied()).as_bytes(), b"\xff"].concat());
    for name in &names {
        execute(&store, "INSERT INTO callboard.entries (key, revision, value) VALUES ($1, 1, 'x')", &[name]);
    }
    let gone = json!({ "id": "gone", "build": "0.1.0", "letters": 1, "agents": [] }).to_string();
    execute(&store, "SELECT callboard.begin_session('gone', $1, 0, 'x', NULL)", &[gone.as_bytes()]);
    let mut command = command_on(&a, &store, &["serve", "--listen", "127.0.0.1:0", "--name", "a"]);
    let board = Serving::of(command.env("CALLBOARD_LOG", "warn"));
    let run = sent(&a, &store, "coder");
    assert_eq!(done(&on(&a, &store, &["wait", &run])).out, "done\n");
    assert_eq!(done(&on(&a, &store, &["runs", "list", "--json"])).parsed::<Vec<Value>>().len(), 1);
    // The look for boards that are gone reads the notes of open runs and the letters to that board.
    until(|| (boards(&a, &store) == [("a".to_owned(), true, false)]).then_some(()));
    let checked = on(&a, &store, &["store", "check"]);
    assert_eq!(checked.code, Some(1), "{}", checked.error);
    assert!(checked.out.contains("1 run, 3 damaged"), "{}", checked.out);
    let stopped = board.stop();
    for (family, name) in families.iter().zip(&names) {
        let name: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
        let line = format!(
            "damaged: \\x{name}: its name in the table entries is not that of a key; delete the row, which no board has written\n"
        );
        assert!(checked.out.contains(&line), "{}", checked.out);
        let report = format!("is left out; `callboard store check` lists all of them row=\\x{name}");
        // Nobody has asked the server for the list of ended runs; it looks for old ones each minute.
        let least = usize::from(*family != ["listed"]);
        let count = stopped.error.matches(&report).count();
        assert!((least..=1).contains(&count), "{count} times {report}: {}", stopped.error);
    }
}

#[test]
fn a_migration_by_a_role_that_may_not_is_denied_with_what_to_do() {
    let store = database("rights", "postgres");
    let a = project("coder", "end(turn, 'done')\n");
    done(&on(&a, &store, &["store", "migrate", "--runtime-role", "of_rights"]));
    let as_boards = store.replace("postgres://postgres@", "postgres://of_rights@");
    let refused = on(&a, &as_boards, &["store", "migrate"]);
    assert_eq!(refused.code, Some(4), "{}", refused.error);
    assert!(refused.error.contains("connect as postgres, which owns the schema callboard"), "{}", refused.error);
}
