//! Texts and addresses that try to be more than that: none of them ends a line, a header or a mail, and none is longer than a mail may be.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use callboard::messages::{Action, AgentName};
use callboard::prelude::*;
use callboard_channels::email::{EmailChannel, EmailConfig, EmailError, EmailPassword, EmailTls};
use serde_json::json;

use crate::fake::Smtp;
use crate::mime::Mail;
use crate::team::{ANN, Team, config};

/// The headers of the first mail of a thread, and of the others.
const FIRST: [&str; 9] = [
    "From",
    "To",
    "Subject",
    "Date",
    "Message-ID",
    "Auto-Submitted",
    "MIME-Version",
    "Content-Type",
    "Content-Transfer-Encoding",
];
const LATER: [&str; 2] = ["In-Reply-To", "References"];

/// A mail has these headers and no others, and no line that a server could take for something else.
fn assert_one_mail(mail: &Mail) {
    let mut expected: Vec<&str> = FIRST.into_iter().chain(LATER.into_iter().filter(|_| mail.is_closed())).collect();
    let mut names = mail.names();
    expected.sort_unstable();
    names.sort_unstable();
    assert_eq!(names, expected, "{}", mail.raw);
    assert!(mail.raw.is_ascii() && !mail.raw.contains("=?utf-8?q?"), "{}", mail.raw);
    for line in mail.raw.split("\r\n") {
        assert!(line.len() <= 998 && !line.contains(['\r', '\n', '\0']), "{line:?}");
    }
}

const HOSTILE: [&str; 12] = [
    "a\r\nBcc: eve@example.org",
    "a\nBcc: eve@example.org\n\nbody",
    "a\r\n.\r\nMAIL FROM:<eve@example.org>\r\n",
    "\r\n\r\n<html><script>alert(1)</script>",
    "=?utf-8?q?=0D=0ABcc:=20eve@example.org?=",
    "\u{202e}gpj.exe",
    "zero\u{200b}width\u{feff}",
    "\u{2028}Bcc: eve@example.org\u{2029}",
    "\u{85}Bcc: eve@example.org",
    "\u{1b}[2J\u{7}",
    "漢字 🙈 é",
    ".",
];

#[tokio::test]
async fn no_text_of_an_agent_adds_a_header_a_recipient_or_a_mail() {
    let team = Team::with(|config| config.with_arguments(), |board| board).await;
    for (number, text) in HOSTILE.iter().enumerate() {
        let target = format!("{text} <{number}>");
        let (_, asked) = team.ask(&target, json!({ "text": text })).await;
        let mail = team.smtp.asked(ANN, &format!("<{number}>")).await;
        team.board.people().deny(asked.id(), "the auditor", text).await.unwrap();
        let closed = team.smtp.closed(ANN, &format!("<{number}>")).await;
        for mail in [&mail, &closed] {
            assert_one_mail(mail);
            let shown = mail.text() + &mail.header("Subject");
            let hidden =
                ['\r', '\0', '\u{1b}', '\u{7}', '\u{85}', '\u{202e}', '\u{200b}', '\u{feff}', '\u{2028}', '\u{2029}'];
            assert!(!shown.contains(hidden), "{shown:?}");
            assert!(!mail.text().lines().any(|line| line.starts_with("Bcc:") || line == "."), "{shown}");
        }
        assert!(closed.header("Subject").starts_with("Re: Approval: pay "), "{}", closed.raw);
    }
    let served = team.smtp.served.lock().clone();
    assert!(served.mails.iter().all(|mail| mail.from == "board@example.org"), "{:?}", served.commands);
    let recipients = served.commands.iter().filter(|command| command.starts_with("RCPT"));
    assert!(recipients.clone().count() > 0);
    for recipient in recipients {
        assert!(["RCPT TO:<ann@example.org>", "RCPT TO:<bob@example.org>"].contains(&&**recipient), "{recipient}");
    }
    team.board.shutdown().await;
}

#[tokio::test]
async fn names_of_agents_and_actions_stay_in_their_lines() {
    let smtp = Smtp::start();
    let folder = tempfile::tempdir().unwrap();
    let channel = EmailChannel::open(config(&smtp, folder.path())).unwrap();
    let action = "pay\r\nBcc: eve@example.org\r\n\r\n<b>";
    let clerk = move |turn: Turn| async move {
        turn.people().approve(Action::new(action, "order 1\r\nX: y", json!({}))).await?;
        Ok(Command::output("paid"))
    };
    let board = Callboard::builder().agent("clerk", clerk).channel(channel).start().await.unwrap();
    let requester = AgentName::new("bob").unwrap();
    board.submit(Task::new("pay").from_agent(requester)).await.unwrap();
    let mail = smtp.asked(ANN, "order 1").await;
    assert_one_mail(&mail);
    let subject = mail.header("Subject");
    assert!(subject.contains("pay\\u{d}\\u{a}Bcc: eve@example.org") && !subject.contains('\r'), "{subject}");
    board.shutdown().await;
}

#[tokio::test]
async fn a_megabyte_is_cut_with_its_number_and_where_all_of_it_is_seen() {
    let team = Team::with(|config| config.with_arguments(), |board| board).await;
    let long = format!("{}THE END", "漢🙈\n".repeat(200_000));
    team.ask(&format!("order 1 {}", "x".repeat(1_000_000)), json!({ "text": long })).await;
    let mail = team.smtp.asked(ANN, "order 1").await;
    assert_one_mail(&mail);
    let text = mail.text();
    assert!(text.contains(" more characters; all of it: https://board.example.org/?run="), "{text}");
    assert!(text.contains("THE END") && text.len() < 60_000 && mail.raw.len() < 100_000, "{}", mail.raw.len());
    let subject = mail.header("Subject");
    assert!(subject.chars().count() < 200 && subject.contains("xxx…"), "{subject}");
    // Without the arguments, the head alone is as long.
    let team_without = Team::start().await;
    team_without.ask(&format!("order 2 {}", "\u{202e}".repeat(300_000)), json!({})).await;
    let mail = team_without.smtp.asked(ANN, "order 2").await;
    assert_one_mail(&mail);
    assert!(mail.raw.len() < 100_000 && mail.text().contains("\\u{202e}…"), "{}", mail.raw.len());
    for team in [team, team_without] {
        team.board.shutdown().await;
    }
}

#[test]
fn addresses_and_hosts_that_are_more_than_that_are_refused() {
    let many = "a".repeat(300);
    let long = format!("{many}@example.org");
    for address in [
        "",
        "ann",
        "@example.org",
        "ann@",
        "a b@example.org",
        "\"ann\"@example.org",
        "ann@example.org\r\nBcc: eve@example.org",
        "ann@example.org>, <eve@example.org",
        "ann@example.org,eve@example.org",
        "Ann <ann@example.org>",
        "ann@exämple.org",
        "änn@example.org",
        "ann@example.org\0",
        "ann@[127.0.0.1]",
        "<ann@example.org>",
        &long,
    ] {
        let refused = EmailConfig::check_address(address);
        assert!(matches!(refused, Err(EmailError::Address { .. })), "{address:?}");
    }
    for address in ["ann@example.org", "ann+board@mail.example.org", "a.b-c_d@localhost"] {
        assert!(EmailConfig::check_address(address).is_ok(), "{address}");
    }
    for from in ["board@example.org", "the board <board@example.org>", "\"a, b\" <board@example.org>"] {
        assert!(EmailConfig::check_from(from).is_ok(), "{from}");
    }
    for from in
        ["board", "a\r\nBcc: b@example.org <board@example.org>", "\u{202e} <board@example.org>", "a@b.org, c@d.org"]
    {
        assert!(EmailConfig::check_from(from).is_err(), "{from:?}");
    }
    for host in ["", "mail.example.org:25", "smtp://mail.example.org", "a b", "mail\r\n", "mail/..", &many] {
        assert!(EmailConfig::check_host(host, EmailTls::Starttls).is_err(), "{host:?}");
    }
    for host in ["localhost", "127.0.0.1", "::1"] {
        assert!(EmailConfig::check_host(host, EmailTls::None).is_ok(), "{host}");
    }
    for host in ["mail.example.org", "10.0.0.1", "localhost.example.org"] {
        let refused = EmailConfig::check_host(host, EmailTls::None).unwrap_err().to_string();
        assert!(refused.starts_with("without TLS mails could be read on the way"), "{refused}");
        assert!(EmailConfig::check_host(host, EmailTls::Starttls).is_ok(), "{host}");
    }
    for password in ["", " \n", "a\rb", "a\0b"] {
        assert!(EmailPassword::new(password).is_err(), "{password:?}");
    }
}

#[tokio::test]
async fn what_is_kept_is_of_this_user_alone_and_a_damaged_file_is_refused() {
    let team = Team::start().await;
    team.ask("order 1", json!({ "secret": "CANARY" })).await;
    team.smtp.asked(ANN, "order 1").await;
    let folder = team.folder.path().join("email");
    team.board.shutdown().await;
    // The channel may write its file until it is dropped with the board.
    drop(team.board);
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder), mode(&folder.join("email.json"))), (0o700, 0o600));
    let kept = std::fs::read_to_string(folder.join("email.json")).unwrap();
    assert!(kept.contains("order 1") && !kept.contains("CANARY"), "{kept}");
    std::fs::write(folder.join("email.json"), "{").unwrap();
    let refused = EmailChannel::open(config(&team.smtp, team.folder.path())).unwrap_err().to_string();
    assert!(refused.contains("email.json") && refused.ends_with("open questions are sent again"), "{refused}");
}
