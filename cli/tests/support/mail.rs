//! A server on this machine that takes mails, as much as one run needs.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

/// Longer than any program takes to send a mail on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// Passes the mails that it takes to the test. It refuses those to addresses that begin with `gone`.
pub(crate) struct MailServer {
    pub(crate) port: u16,
    mails: mpsc::Receiver<String>,
}

impl MailServer {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (send, mails) = mpsc::channel();
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let send = send.clone();
                std::thread::spawn(move || serve(stream, &send));
            }
        });
        Self { port, mails }
    }

    /// The next mail, with lines as they were before they were encoded. Characters that are not of ASCII are not decoded.
    pub(crate) fn mail(&self) -> String {
        let mail = self.mails.recv_timeout(DEADLINE).expect("no mail is sent");
        mail.replace("=\r\n", "").replace("=3D", "=").replace("\r\n", "\n")
    }
}

/// Ends with the connection.
fn serve(mut stream: TcpStream, send: &mpsc::Sender<String>) {
    let lines = BufReader::new(stream.try_clone().unwrap());
    let (mut mail, mut is_mail) = (String::new(), false);
    let _ = stream.write_all(b"220 here\r\n");
    for line in lines.lines().map_while(Result::ok) {
        let answer = match line.split([' ', ':']).next().unwrap() {
            "." if is_mail => {
                is_mail = false;
                let _ = send.send(std::mem::take(&mut mail));
                "250 2.0.0 taken"
            }
            _ if is_mail => {
                mail += &(line.clone() + "\r\n");
                continue;
            }
            "EHLO" => "250-here\r\n250 AUTH PLAIN",
            "AUTH" => "235 2.7.0 welcome",
            "RCPT" if line.contains("<gone") => "550 5.1.1 CANARY is gone",
            "DATA" => {
                is_mail = true;
                "354 go on"
            }
            _ => "250 2.0.0 ok",
        };
        let _ = stream.write_all(format!("{answer}\r\n").as_bytes());
    }
}
