//! Proxies whose word about the client counts.

use std::net::IpAddr;
use std::str::FromStr;

use axum::http::{HeaderMap, HeaderValue};
use callboard::messages::visible;

/// The header in which proxies list the clients of a request, the nearest last.
const FORWARDED: &str = "x-forwarded-for";

/// An address, or a network of addresses such as `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    /// How many bits of the address count.
    bits: u32,
}

/// A text that is no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} is no IP address, and no network such as 10.0.0.0/8 or fd00::/8", visible(.0))]
pub struct NetworkError(String);

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let invalid = || NetworkError(text.to_owned());
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(width), |bits| bits.parse().map_err(|_| invalid()))?;
        let network = Self { address, bits };
        // One whose further bits are set is probably misspelt.
        if bits <= width && network.masked(address) == number(address) { Ok(network) } else { Err(invalid()) }
    }
}

impl Network {
    fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4() && self.masked(address) == number(self.address)
    }

    /// The bits of an address that count.
    fn masked(&self, address: IpAddr) -> u128 {
        let width = if address.is_ipv4() { 32 } else { 128 };
        let rest = width - self.bits.min(width);
        number(address).checked_shr(rest).and_then(|kept| kept.checked_shl(rest)).unwrap_or_default()
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

/// The client of a request that came from `peer`: the last address that a proxy of the list reports, and that is none of them. Nobody
/// else's word counts, because clients can send the header too. If a proxy reports no address, it is the client itself.
pub(crate) fn client(peer: IpAddr, headers: &HeaderMap, proxies: &[Network]) -> IpAddr {
    let values: Vec<&[u8]> = headers.get_all(FORWARDED).iter().map(HeaderValue::as_bytes).collect();
    // Entries are read one by one: what a client wrote before them, in whatever bytes, hides none that a proxy has appended.
    let mut reported = values.iter().rev().flat_map(|value| value.rsplit(|byte| *byte == b','));
    let mut client = peer.to_canonical();
    while proxies.iter().any(|proxy| proxy.contains(client)) {
        let Some(address) = reported.next().and_then(|entry| address(str::from_utf8(entry).ok()?.trim())) else {
            break;
        };
        client = address.to_canonical();
    }
    client
}

/// An address, with a port or without one.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let socket = || text.parse().ok().map(|socket: std::net::SocketAddr| socket.ip());
    bare.parse().ok().or_else(socket)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn a_network_has_the_addresses_whose_first_bits_are_its_own() {
        let network = |text: &str| text.parse::<Network>();
        for (text, address, expected) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "a00::1", false),
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("0.0.0.0/0", "192.0.2.1", true),
            ("::/0", "192.0.2.1", false),
            ("::/0", "2001:db8::1", true),
            ("fd00::/8", "fd12::1", true),
            ("::1", "::1", true),
        ] {
            assert_eq!(network(text).unwrap().contains(address.parse().unwrap()), expected, "{text} {address}");
        }
        for text in
            ["", "10.0.0.0/33", "10.0.0.1/8", "10.0.0.0/", "10.0.0.0/-1", "10.0.0/8", "localhost", "::/129", "::1/64"]
        {
            assert!(network(text).is_err(), "{text}");
        }
    }

    #[test]
    fn only_listed_proxies_report_clients() {
        let proxies = ["10.0.0.0/8".parse().unwrap(), "::1".parse().unwrap()];
        let of = |peer: &str, headers: &[&str]| {
            let mut map = HeaderMap::new();
            for header in headers {
                map.append(FORWARDED, HeaderValue::from_bytes(header.as_bytes()).unwrap());
            }
            client(peer.parse().unwrap(), &map, &proxies).to_string()
        };
        assert_eq!(of("10.0.0.1", &[]), "10.0.0.1");
        assert_eq!(of("192.0.2.9", &["203.0.113.1"]), "192.0.2.9", "it is no proxy");
        assert_eq!(of("10.0.0.1", &["203.0.113.1"]), "203.0.113.1");
        assert_eq!(of("::ffff:10.0.0.1", &["203.0.113.1"]), "203.0.113.1");
        assert_eq!(of("10.0.0.1", &["1.2.3.4, 203.0.113.1"]), "203.0.113.1", "what the client wrote is before it");
        assert_eq!(of("10.0.0.1", &["1.2.3.4", "203.0.113.1, 10.0.0.2"]), "203.0.113.1", "two proxies");
        assert_eq!(of("10.0.0.1", &["1.2.3.4, nobody, 10.0.0.2"]), "10.0.0.2", "no address is no client");
        assert_eq!(of("10.0.0.1", &["10.0.0.3"]), "10.0.0.3");
        assert_eq!(of("10.0.0.1", &["é, 203.0.113.1"]), "203.0.113.1", "a client cannot hide by its bytes");
        assert_eq!(of("10.0.0.1", &["é", "203.0.113.1, 10.0.0.2"]), "203.0.113.1");
        assert_eq!(of("10.0.0.1", &["203.0.113.1, é"]), "10.0.0.1", "the proxy reported no address");
        for (text, expected) in
            [("[2001:db8::1]:99", "2001:db8::1"), ("[2001:db8::1]", "2001:db8::1"), ("192.0.2.1:99", "192.0.2.1")]
        {
            assert_eq!(of("::1", &[text]), expected);
        }
    }
}
