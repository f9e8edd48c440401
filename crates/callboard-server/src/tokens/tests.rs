//! Tokens in memory, and in a file that several processes change.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::*;

/// A folder, and the path of a file of tokens in a private one below it.
fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("server/tokens.json");
    (folder, file)
}

fn open(file: &Path) -> Tokens {
    Tokens::open(file, Env::system()).unwrap()
}

fn name_of(tokens: &Tokens, secret: &str) -> Option<String> {
    tokens.caller(secret).unwrap().map(|caller| caller.name.to_string())
}

fn refusal(file: &Path) -> String {
    Tokens::open(file, Env::system()).err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn names_of_owners_and_namespaces_are_names() {
    let tokens = Tokens::new(Env::system());
    let add = |owner: &str, namespace: &str| {
        let spec = TokenSpec::new("ci", [Scope::Read]).owner(owner).namespaces([namespace]);
        tokens.add(spec).map(drop).map_err(|error| error.to_string().split('"').next().map(str::to_owned))
    };
    for (owner, namespace, what) in [
        ("", "notes", "owner"),
        ("o\u{1b}[2J", "notes", "owner"),
        ("a\u{202e}b", "notes", "owner"),
        ("Ann", "n\n", "namespace"),
    ] {
        let refused = add(owner, namespace).unwrap_err().unwrap();
        assert!(refused.starts_with(&format!("{what} name")), "{owner:?} {namespace:?}: {refused}");
    }
    assert_eq!(add("Ann O'Neil", "run:019a0000-0000-7000-8000-000000000001"), Ok(()));
}

#[test]
fn a_secret_is_known_until_its_token_is_revoked_or_expires() {
    let tokens = Tokens::new(Env::system());
    let secret = tokens.add(TokenSpec::new("ann", [Scope::Read])).unwrap();
    assert!(secret.starts_with(PREFIX) && secret.len() == PREFIX.len() + 64);
    let caller = tokens.caller(&secret).unwrap().unwrap();
    assert_eq!((&*caller.name, (*caller.scopes).clone()), ("ann", [Scope::Read].into()));
    for wrong in ["", "cbt_", &secret[1..], &secret.to_uppercase(), &format!("{secret} ")] {
        assert_eq!(name_of(&tokens, wrong), None, "{wrong:?}");
    }
    assert!(matches!(tokens.add(TokenSpec::new("ann", [])), Err(TokenError::Exists(name)) if name == "ann"));
    assert!(matches!(tokens.add(TokenSpec::new("a\u{202e}b", [])), Err(TokenError::Name(_))));
    for name in ["owner", "mcp"] {
        assert!(matches!(tokens.add(TokenSpec::new(name, [])), Err(TokenError::Reserved)));
    }
    assert!(matches!(tokens.owner_secret(), Err(TokenError::InMemory)));
    assert!(tokens.revoke("ann").unwrap() && !tokens.revoke("ann").unwrap());
    assert_eq!(name_of(&tokens, &secret), None);

    let short = tokens.add(TokenSpec::new("bob", Scope::ALL).lifetime(Duration::ZERO)).unwrap();
    assert_eq!(name_of(&tokens, &short), None);
}

#[test]
fn tokens_are_there_after_a_restart_and_their_secrets_are_not_in_the_file() {
    let (_folder, file) = place();
    let secret = open(&file).add(TokenSpec::new("ci", [Scope::Read, Scope::Delegate])).unwrap();
    let lived = TokenSpec::new("bob", []).lifetime(Duration::from_secs(60));
    let tokens = open(&file);
    tokens.add(lived).unwrap();
    assert_eq!(name_of(&tokens, &secret).as_deref(), Some("ci"));
    let text = fs::read_to_string(&file).unwrap();
    assert!(!text.contains(&secret[PREFIX.len()..]), "{text}");
    let mode = |path: &Path| path.metadata().unwrap().mode() & 0o7777;
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    let listed = open(&file).list().unwrap();
    assert_eq!(listed, tokens.list().unwrap());
    assert_eq!(listed.iter().map(|token| &*token.name).collect::<Vec<_>>(), ["bob", "ci"]);
    assert_eq!(listed[0].expires_at, Some(listed[0].created_at + Duration::from_secs(60)));
    assert_eq!((listed[1].expires_at, &listed[1].scopes), (None, &[Scope::Read, Scope::Delegate].into()));
}

#[test]
fn what_another_process_adds_and_revokes_is_noticed() {
    let (_folder, file) = place();
    let (server, terminal) = (open(&file), open(&file));
    for round in 0..50 {
        let name = format!("t{round}");
        let secret = terminal.add(TokenSpec::new(&name, [Scope::Read])).unwrap();
        assert_eq!(name_of(&server, &secret), Some(name.clone()));
        assert!(server.revoke(&name).unwrap());
        assert_eq!(name_of(&terminal, &secret), None, "{name}");
    }
    let secret = terminal.add(TokenSpec::new("last", [])).unwrap();
    fs::remove_dir_all(file.parent().unwrap()).unwrap();
    assert_eq!(name_of(&server, &secret), None, "a file that is removed has no tokens");
}

#[test]
fn tokens_that_are_added_at_the_same_time_are_all_kept() {
    let (_folder, file) = place();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let file = &file;
            scope.spawn(move || {
                let tokens = open(file);
                for number in 0..10 {
                    tokens.add(TokenSpec::new(&format!("t{thread}-{number}"), [])).unwrap();
                }
            });
        }
    });
    assert_eq!(open(&file).list().unwrap().len(), 80);
}

/// On virtual time: the stream looks again after a while.
#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_its_token_also_if_another_process_revokes_it() {
    let (_folder, file) = place();
    let server = open(&file);
    let secret = server.add(TokenSpec::new("ci", [])).unwrap();
    let caller = server.caller(&secret).unwrap().unwrap();
    let ended = server.ended(&caller);
    tokio::pin!(ended);
    assert!(tokio::time::timeout(Duration::from_secs(60), &mut ended).await.is_err());
    open(&file).revoke("ci").unwrap();
    assert!(tokio::time::timeout(LOOK_AGAIN, ended).await.is_ok());
}

#[test]
fn the_owners_secret_is_made_once_and_found_by_other_commands() {
    let (_folder, file) = place();
    let secret = open(&file).owner_secret().unwrap();
    let kept = file.with_file_name("owner-token");
    assert_eq!(fs::read_to_string(&kept).unwrap(), format!("{secret}\n"));
    assert_eq!(kept.metadata().unwrap().mode() & 0o7777, 0o600);
    let tokens = open(&file);
    assert_eq!(tokens.owner_secret().unwrap(), secret);
    let caller = tokens.caller(&secret).unwrap().unwrap();
    assert_eq!((&*caller.name, (*caller.scopes).clone()), ("owner", Scope::ALL.into()));
    assert!(tokens.list().unwrap()[0].is_owner);

    tokens.revoke("owner").unwrap();
    let second = tokens.owner_secret().unwrap();
    fs::remove_file(&kept).unwrap();
    let third = tokens.owner_secret().unwrap();
    assert_eq!([&secret, &second, &third].map(|secret| name_of(&tokens, secret).is_some()), [false, false, true]);

    fs::set_permissions(&kept, Permissions::from_mode(0o644)).unwrap();
    let refused = tokens.owner_secret().unwrap_err().to_string();
    assert_eq!(refused, format!("{0} has the mode 0644; run `chmod 0600 {0}`", kept.display()));
}

#[test]
fn a_damaged_file_is_reported_and_not_overwritten() {
    let (_folder, file) = place();
    let tokens = open(&file);
    let secret = tokens.add(TokenSpec::new("ci", Scope::ALL)).unwrap();
    let whole = fs::read_to_string(&file).unwrap();
    let twice =
        whole.replacen("[", &format!("[{},", &whole[whole.find("[").unwrap() + 1..whole.rfind(']').unwrap()]), 1);
    for damaged in [
        "",
        &whole[..whole.len() / 2],
        "{}",
        "[]",
        &whole.replace("\"version\": 3", "\"version\": 4"),
        &whole.replace("\"revoked\": {}", "\"revoked\": {\"ci\": null}"),
        &whole.replace("sha256\": \"", "sha256\": \"0"),
        &whole.replace("\"admin\"", "\"root\""),
        &whole.replace("\"is_owner\"", "\"owner\""),
        &twice,
    ] {
        fs::write(&file, damaged).unwrap();
        for error in [
            tokens.caller(&secret).map(drop),
            tokens.add(TokenSpec::new("ann", [])).map(drop),
            tokens.revoke("ci").map(drop),
            tokens.list().map(drop),
            tokens.owner_secret().map(drop),
            Tokens::open(&file, Env::system()).map(drop),
        ] {
            let error = error.unwrap_err();
            assert!(matches!(&error, TokenError::Damaged { path, .. } if *path == file), "{damaged}: {error:?}");
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), damaged);
    }
    fs::write(&file, &whole).unwrap();
    assert_eq!(name_of(&tokens, &secret).as_deref(), Some("ci"));
}

#[test]
fn a_folder_that_others_may_use_is_refused() {
    let (folder, file) = place();
    open(&file);
    let private = file.parent().unwrap();
    for mode in [0o701, 0o710, 0o750, 0o755, 0o770, 0o777, 0o1700] {
        fs::set_permissions(private, Permissions::from_mode(mode)).unwrap();
        let advice = format!("{0} has the mode {mode:04o}; run `chmod 0700 {0}`", private.display());
        assert_eq!(refusal(&file), advice);
    }
    fs::set_permissions(private, Permissions::from_mode(0o700)).unwrap();
    let link = folder.path().join("link");
    symlink(private, &link).unwrap();
    for path in [link.join("tokens.json"), link.join("./tokens.json")] {
        assert_eq!(refusal(&path), format!("{} is no folder; links are not followed", link.display()));
    }
    let plain = folder.path().join("plain");
    fs::write(&plain, "").unwrap();
    assert_eq!(
        refusal(&plain.join("tokens.json")),
        format!("{} is no folder; links are not followed", plain.display())
    );
}

#[test]
fn a_file_that_others_may_use_or_that_is_none_is_refused() {
    let (folder, file) = place();
    let tokens = open(&file);
    tokens.add(TokenSpec::new("ci", [])).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
    assert_eq!(refusal(&file), format!("{0} has the mode 0640; run `chmod 0600 {0}`", file.display()));
    let other = folder.path().join("other");
    fs::rename(&file, &other).unwrap();
    fs::set_permissions(&other, Permissions::from_mode(0o600)).unwrap();
    let none = format!("{} is no file; links are not followed", file.display());
    symlink(&other, &file).unwrap();
    assert_eq!(refusal(&file), none);
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert_eq!(refusal(&file), none);
    fs::remove_dir(&file).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    assert_eq!(refusal(&file), none, "a pipe is not waited for");
}

#[test]
fn the_terms_of_a_token_are_there_after_a_restart() {
    let (_folder, file) = place();
    let per_day = PerDay { tokens: Some(7), cost: Some(Cost(9)) };
    let spec = TokenSpec::new("ci", [Scope::Read]).owner("ann").namespaces(["codebase", "pm"]).requests_a_minute(30);
    let per_run = PerRun { tokens: Some(5), cost: Some(Cost(6)), agents: Some(2) };
    let spec = spec.per_day(per_day).per_run(per_run);
    let secret = open(&file).add(spec).unwrap();
    let plain = open(&file).add(TokenSpec::new("plain", [])).unwrap();
    let tokens = open(&file);
    let listed = tokens.list().unwrap();
    assert_eq!((listed[0].owner.as_deref(), listed[0].requests_a_minute), (Some("ann"), Some(30)));
    assert_eq!(listed[0].namespaces, ["codebase", "pm"].map(str::to_owned).into());
    assert_eq!((&listed[1].owner, listed[1].namespaces.len(), listed[1].requests_a_minute), (&None, 0, None));
    assert_eq!(
        ["ci", "plain", "mcp", "owner"].map(|name| tokens.per_day_of(name)),
        [per_day, PerDay::default(), PerDay::default(), PerDay::default()]
    );
    let caller = |secret: &str| tokens.caller(secret).unwrap().unwrap();
    assert!(caller(&secret).reaches("pm") && !caller(&secret).reaches("p") && !caller(&plain).reaches("pm"));
    assert!(caller(&tokens.owner_secret().unwrap()).reaches("anything"));
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(text.matches("\"terms\"").count(), 1, "only where there are some: {text}");
    assert_eq!((listed[0].per_run, tokens.per_run_of("ci")), (per_run, per_run));
    assert_eq!((tokens.per_run_of("owner"), tokens.per_run_of("none").tokens), (PerRun::default(), Some(0)));
    let nothing = PerDay { tokens: Some(0), cost: None };
    assert!(tokens.revoke("plain").unwrap());
    assert_eq!(["plain", "none"].map(|name| tokens.per_day_of(name)), [nothing; 2]);
}

#[test]
fn the_name_of_a_revoked_token_stays_with_its_owner_and_is_never_used_again() {
    let (_folder, file) = place();
    open(&file).add(TokenSpec::new("ci", [Scope::Read]).owner("ann")).unwrap();
    open(&file).add(TokenSpec::new("plain", [])).unwrap();
    let expired = TokenSpec::new("old", []).owner("bob").lifetime(Duration::ZERO);
    open(&file).add(expired).unwrap();
    let whole = fs::read_to_string(&file).unwrap();
    assert!(["ci", "plain"].iter().all(|name| open(&file).revoke(name).unwrap()));
    let in_memory = Tokens::new(Env::system());
    in_memory.add(TokenSpec::new("ci", []).owner("ann")).unwrap();
    assert!(in_memory.revoke("ci").unwrap());
    for tokens in [open(&file), in_memory] {
        let refused = tokens.add(TokenSpec::new("ci", []).owner("bob")).unwrap_err().to_string();
        assert_eq!(refused, "a token ci was revoked, and its runs are still known by that name; choose another name");
        assert_eq!(tokens.owner_of("ci").as_deref(), Some("ann"));
        assert!(!tokens.revoke("ci").unwrap());
    }
    let tokens = open(&file);
    let refused = tokens.add(TokenSpec::new("old", [])).unwrap_err().to_string();
    assert_eq!(refused, "there is a token old; choose another name");
    assert_eq!(["plain", "old", "none"].map(|name| tokens.owner_of(name)), [None, Some("bob".to_owned()), None]);
    assert_eq!(tokens.revoked().unwrap(), ["ci", "plain"]);
    assert_eq!(tokens.list().unwrap().len(), 1);
    let text = fs::read_to_string(&file).unwrap();
    let hash = whole.split("\"sha256\": \"").nth(1).unwrap().split('"').next().unwrap();
    assert!(whole.contains(hash) && !text.contains(hash), "{text}");

    // The token of this user is made again under its name.
    tokens.owner_secret().unwrap();
    assert!(tokens.revoke("owner").unwrap());
    tokens.owner_secret().unwrap();
    assert_eq!(tokens.list().unwrap().len(), 2);
}

#[test]
fn a_file_of_version_1_is_read_and_written_with_the_version_of_today() {
    let (_folder, file) = place();
    open(&file);
    let text = r#"{"version":1,"tokens":[{"name":"ci","sha256":"HASH","scopes":["read"],"created_at_ms":1,"expires_at_ms":null,"is_owner":false,"terms":{"owner":"ann"}}]}"#;
    fs::write(&file, text.replace("HASH", &"0".repeat(64))).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    let tokens = open(&file);
    assert_eq!((tokens.owner_of("ci").as_deref(), tokens.revoked().unwrap().len()), (Some("ann"), 0));
    assert!(tokens.revoke("ci").unwrap());
    let written = fs::read_to_string(&file).unwrap();
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&written).unwrap(),
        serde_json::json!({ "version": 3, "tokens": [], "revoked": { "ci": "ann" } })
    );
}

#[test]
fn texts_of_answers_have_no_secrets() {
    let (secret, short) = (new_secret().unwrap(), "cbt_0123 é cbt_");
    for (text, shown) in [
        (short.to_owned(), short.to_owned()),
        (format!("a{secret}"), "a[a token]".to_owned()),
        (format!("é{}x {secret}{secret} é", secret.to_uppercase()), "é[a token]x [a token][a token] é".to_owned()),
        (format!("{}.", &secret[..30]), "[a token].".to_owned()),
    ] {
        assert_eq!(without_secrets(&text), shown);
    }
}
