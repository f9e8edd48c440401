//! Servers that fail in every way: the board continues, what was missed is sent, and nothing shows the password.

use std::time::Duration;

use callboard_channels::email::{EmailChannel, EmailConfig, EmailState, EmailTls};
use serde_json::json;

use crate::fake::{Failing, Served, Smtp};
use crate::logs::Logs;
use crate::mime::base64;
use crate::team::{ANN, BOB, PASSWORD, Team, config};

/// The part of the password that nobody may see.
const CANARY: &str = "CANARY";

fn is_unreachable(state: &EmailState, why: &str) -> bool {
    matches!(state, EmailState::Unreachable { why: shown } if shown.starts_with(why))
}

#[tokio::test]
async fn no_failure_shows_the_password_and_afterwards_everything_is_sent() {
    let (logs, _guard) = Logs::start();
    let team = Team::start().await;
    let (mut shown, folder) = (Vec::new(), team.folder.path().to_owned());
    for (number, (failing, expected)) in [
        (Failing::Down, "its answer is none of SMTP, or the connection has ended"),
        (
            Failing::Password("535 5.7.8 CANARY horse is wrong"),
            "it does not take the user and the password (535 5.7.8)",
        ),
        (Failing::Sender("530 CANARY"), "it answers 530"),
        (Failing::Sender("550 5.7.1 CANARY horse"), "it answers 550 5.7.1"),
        (Failing::Sender("421 4.3.2 CANARY horse"), "it answers 421 4.3.2"),
        (Failing::Garbage, "its answer is none of SMTP"),
    ]
    .into_iter()
    .enumerate()
    {
        team.smtp.fail(failing);
        team.ask(&format!("order <{number}>"), json!({})).await;
        shown.push(format!("{:?}", team.state(|state| is_unreachable(state, expected)).await));
        let looked = config(&team.smtp, &folder).look().await.unwrap_err();
        assert!(looked.starts_with(expected), "{looked}");
        shown.push(looked);
    }
    team.smtp.fail(Failing::Silent);
    team.ask("order in silence", json!({})).await;
    let slow = config(&team.smtp, &folder).timeout(Duration::from_millis(50)).look().await.unwrap_err();
    assert_eq!(slow, "it has not answered within 0 s");
    team.smtp.fail(Failing::No);
    for to in [ANN, BOB] {
        for order in ["order <0>", "order <3>", "order <5>", "order in silence"] {
            team.smtp.asked(to, order).await;
        }
    }
    let dead = config(&team.smtp, &folder).port(1);
    shown.push(dead.look().await.unwrap_err());
    shown.push(format!("{dead:?}"));
    team.board.shutdown().await;
    let kept = std::fs::read_to_string(folder.join("email/email.json")).unwrap();
    for text in shown.iter().chain([&logs.text(), &kept]) {
        assert!(!text.contains(CANARY), "{text}");
    }
    let plain = |command: &str| Some(String::from_utf8(base64(command.strip_prefix("AUTH PLAIN ")?)).unwrap());
    let commands = team.smtp.served.lock().commands.clone();
    assert!(commands.iter().any(|command| plain(command).is_some_and(|it| it == format!("\0board\0{PASSWORD}"))));
    for command in commands.iter().filter_map(|command| command.strip_prefix("AUTH PLAIN ")) {
        assert!(!logs.text().contains(command), "the password is in the log");
    }
    assert!(logs.text().contains("the server of mail is not reached; it is tried again"), "these are its logs");
}

#[tokio::test]
async fn a_recipient_that_is_refused_holds_up_no_other_and_is_known() {
    let (logs, _guard) = Logs::start();
    let team = Team::start().await;
    team.smtp.change(|served| served.refused.insert(ANN.to_owned(), "550 5.1.1 no such CANARY".to_owned()));
    for order in ["order 1", "order 2"] {
        let (_, asked) = team.ask(order, json!({})).await;
        team.smtp.asked(BOB, order).await;
        team.board.people().approve(asked.id(), "bob").await.unwrap();
        team.smtp.closed(BOB, order).await;
    }
    let why = "the server refuses mail to it (550 5.1.1)";
    let is_known = |state: &EmailState| matches!(state, EmailState::Reached { refused } if refused.get(ANN).is_some_and(|shown| shown == why));
    team.state(is_known).await;
    let tried = |served: &Served| served.commands.iter().filter(|command| command.contains(ANN)).count();
    assert_eq!(tried(&team.smtp.served.lock()), 2, "each question once, and no more");
    assert!(logs.text().contains("a mail is not sent again") && !logs.text().contains(CANARY), "{}", logs.text());
    let looked = config(&team.smtp, team.folder.path()).look().await.unwrap();
    assert_eq!(looked, [(ANN.to_owned(), Err(why.to_owned())), (BOB.to_owned(), Ok(()))]);
    let mails = team.smtp.served.lock().mails.len();
    assert_eq!(mails, 4, "to look sends none");
    // As soon as it is taken, that is known as well.
    team.smtp.change(|served| served.refused.clear());
    team.ask("order 3", json!({})).await;
    team.smtp.asked(ANN, "order 3").await;
    team.state(|state| matches!(state, EmailState::Reached { refused } if refused.is_empty())).await;
    team.board.shutdown().await;
}

#[tokio::test]
async fn a_recipient_that_has_to_wait_holds_up_no_other_and_gets_the_mail_later() {
    let team = Team::start().await;
    team.smtp.change(|served| served.refused.insert(ANN.to_owned(), "450 4.2.0 greylisted".to_owned()));
    team.ask("order 1", json!({})).await;
    team.smtp.asked(BOB, "order 1").await;
    team.ask("order 2", json!({})).await;
    team.smtp.asked(BOB, "order 2").await;
    team.smtp.change(|served| served.refused.clear());
    for order in ["order 1", "order 2"] {
        team.smtp.asked(ANN, order).await;
    }
    team.board.shutdown().await;
}

#[tokio::test]
async fn a_mail_whose_answer_is_lost_is_sent_again_with_the_same_id() {
    let team = Team::start().await;
    team.smtp.fail(Failing::Forgetful);
    let (_, asked) = team.ask("order 1", json!({})).await;
    let mails = team.smtp.found(|served| (served.mails.len() > 2).then(|| served.mails.clone())).await;
    let same = |mail: &crate::mime::Mail| (mail.to.clone(), mail.header("Message-ID"), mail.text());
    assert!(mails.iter().all(|mail| same(mail) == same(&mails[0])), "{mails:?}");
    team.board.people().approve(asked.id(), "ann").await.unwrap();
    team.smtp.fail(Failing::No);
    // It may have arrived.
    team.smtp.closed(ANN, "order 1").await;
    team.board.shutdown().await;
}

#[tokio::test]
async fn what_was_missed_while_the_server_was_down_is_sent_by_the_next_process() {
    let team = Team::start().await;
    let (_, asked) = team.ask("order 1", json!({})).await;
    for to in [ANN, BOB] {
        team.smtp.asked(to, "order 1").await;
    }
    // It ends the connection when it has kept that these were taken.
    let is_quit = |command: &String| command == "QUIT";
    team.smtp.found(|served| served.commands.iter().any(is_quit).then_some(())).await;
    team.smtp.fail(Failing::Down);
    team.board.people().deny(asked.id(), "the auditor", "not now").await.unwrap();
    team.state(|state| is_unreachable(state, "its answer")).await;
    team.board.shutdown().await;
    team.smtp.fail(Failing::No);
    let channel = EmailChannel::open(config(&team.smtp, team.folder.path())).unwrap();
    let next = callboard::prelude::Callboard::builder()
        .agent("clerk", |_: callboard::prelude::Turn| async { Ok(callboard::prelude::Command::output("none")) });
    let next = next.channel(channel).start().await.unwrap();
    for to in [ANN, BOB] {
        assert!(team.smtp.closed(to, "order 1").await.text().starts_with("denied by the auditor at "));
    }
    next.shutdown().await;
}

#[tokio::test]
async fn without_starttls_neither_a_mail_nor_the_password_is_sent() {
    let starttls = |config: EmailConfig| config.tls(EmailTls::Starttls);
    let team = Team::with(starttls, |board| board).await;
    team.ask("order 1", json!({})).await;
    team.state(|state| is_unreachable(state, "it offers no STARTTLS, so nothing is sent")).await;
    // It offers it, and then does something else.
    team.smtp.change(|served| served.offers.push("STARTTLS"));
    team.state(|state| matches!(state, EmailState::Unreachable { why } if !why.contains("STARTTLS"))).await;
    team.board.shutdown().await;
    let served = team.smtp.served.lock().clone();
    let told = ["AUTH", "MAIL", "RCPT", "DATA"];
    assert!(
        !served.commands.iter().any(|command| told.iter().any(|it| command.starts_with(it))),
        "{:?}",
        served.commands
    );
    assert!(served.mails.is_empty() && served.commands.iter().any(|command| command == "STARTTLS"));
    let implicit = config(&team.smtp, team.folder.path()).tls(EmailTls::Implicit);
    let why = implicit.timeout(Duration::from_secs(5)).look().await.unwrap_err();
    assert!(!why.is_empty() && team.smtp.served.lock().mails.is_empty(), "{why}");
}

#[tokio::test]
async fn more_questions_than_are_kept_are_asked_in_turn_and_one_connection_has_many_mails() {
    let team = Team::start().await;
    team.smtp.fail(Failing::Down);
    let (at_once, asked) = (200, 203);
    let mut questions = Vec::new();
    for number in 0..asked {
        questions.push(team.ask(&format!("order <{number}>"), json!({})).await.1);
    }
    let before = team.smtp.served.lock().connections;
    team.smtp.fail(Failing::No);
    team.smtp.asked(BOB, &format!("order <{}>", at_once - 1)).await;
    for (number, question) in questions.iter().enumerate().take(asked - at_once) {
        team.board.people().deny(question.id(), "ann", "").await.unwrap();
        team.smtp.asked(ANN, &format!("order <{}>", at_once + number)).await;
    }
    let connections = team.smtp.served.lock().connections - before;
    assert!(connections < 50, "{connections} connections for 400 mails");
    team.board.shutdown().await;
}

#[test]
fn a_board_starts_without_the_server() {
    let smtp = Smtp::start();
    smtp.fail(Failing::Silent);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let team = Team::on(smtp, |config| config, |board| board).await;
        let (run, asked) = team.ask("order 1", json!({})).await;
        team.board.people().approve(asked.id(), "carl").await.unwrap();
        assert_eq!(run.result().await.unwrap().output, json!("paid"));
        team.board.shutdown().await;
    });
}
