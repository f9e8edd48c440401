//! Hosts that are this machine: what is sent to them crosses no network.

use std::net::IpAddr;

/// Whether this is the name or an address of this machine alone.
pub(crate) fn is_here(host: &str) -> bool {
    let ip = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
}
