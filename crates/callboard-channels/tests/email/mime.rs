//! Mails as a reader sees them.

/// A mail that a server has taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mail {
    /// The addresses of the transaction.
    pub(crate) from: String,
    pub(crate) to: String,
    /// All of it, as it was sent.
    pub(crate) raw: String,
}

impl Mail {
    /// The values of the headers of this name, unfolded and decoded.
    pub(crate) fn headers(&self, name: &str) -> Vec<String> {
        let head = self.raw.split("\r\n\r\n").next().unwrap().replace("\r\n ", " ").replace("\r\n\t", " ");
        let lines = head.split("\r\n").filter_map(|line| line.split_once(": "));
        lines.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| words(value)).collect()
    }

    /// The value of a header that is there once.
    pub(crate) fn header(&self, name: &str) -> String {
        let values = self.headers(name);
        assert_eq!(values.len(), 1, "{name}: {}", self.raw);
        values[0].clone()
    }

    /// The names of all headers.
    pub(crate) fn names(&self) -> Vec<&str> {
        let head = self.raw.split("\r\n\r\n").next().unwrap();
        let lines = head.split("\r\n").filter(|line| !line.starts_with([' ', '\t']));
        lines.map(|line| line.split(':').next().unwrap()).collect()
    }

    /// The text, decoded.
    pub(crate) fn text(&self) -> String {
        let (_, body) = self.raw.split_once("\r\n\r\n").unwrap();
        let bytes = match &*self.header("Content-Transfer-Encoding") {
            "7bit" => body.as_bytes().to_vec(),
            "quoted-printable" => quoted_printable(body),
            "base64" => base64(body),
            other => panic!("the encoding {other}"),
        };
        String::from_utf8(bytes).unwrap().replace("\r\n", "\n")
    }

    /// Whether it says that a question is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.header("Message-ID").contains(".closed@")
    }

    /// The first mail of its thread.
    pub(crate) fn thread(&self) -> String {
        self.headers("References").pop().unwrap_or_else(|| self.header("Message-ID"))
    }
}

/// A value of a header with its encoded words decoded.
fn words(value: &str) -> String {
    let mut parts = value.split("=?utf-8?b?");
    let first = parts.next().unwrap().to_owned();
    parts.fold(first, |text, part| {
        let (encoded, rest) = part.split_once("?=").unwrap();
        // Blanks between two of them are none of the text.
        let text = if text.trim().is_empty() { String::new() } else { text };
        text + &String::from_utf8(base64(encoded)).unwrap() + if rest.trim().is_empty() { "" } else { rest }
    })
}

fn quoted_printable(text: &str) -> Vec<u8> {
    let text = text.replace("=\r\n", "");
    let mut parts = text.split('=');
    let mut bytes = parts.next().unwrap().as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(&part[..2], 16).unwrap());
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    bytes
}

pub(crate) fn base64(text: &str) -> Vec<u8> {
    const DIGITS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits: Vec<u32> = text.chars().filter_map(|c| DIGITS.find(c)).map(|digit| digit as u32).collect();
    let mut bytes = Vec::new();
    for group in digits.chunks(4) {
        let number = (0..4).fold(0, |number, at| number << 6 | group.get(at).copied().unwrap_or_default());
        bytes.extend_from_slice(&number.to_be_bytes()[1..group.len()]);
    }
    bytes
}
