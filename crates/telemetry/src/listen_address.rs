//! Addresses to listen on, as Go programs write them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// Where a page is served, if anywhere: `127.0.0.1:8095`, `:8095` (every interface), `0` (nowhere).
///
/// The forms are those of the Secrets Store CSI driver's `--metrics-addr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenAddress {
    /// Nowhere.
    Off,
    /// One address.
    Single(SocketAddr),
    /// Every interface, of both families where the machine has both (and `net.ipv6.bindv6only` is
    /// 0, as it is unless somebody changed it; else of IPv6 alone).
    AllInterfaces(u16),
}

impl ListenAddress {
    /// The addresses to try, in this order: a machine may have one family only.
    pub(crate) fn candidates(self) -> Vec<SocketAddr> {
        match self {
            Self::Off => Vec::new(),
            Self::Single(address) => vec![address],
            Self::AllInterfaces(port) => vec![
                SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port),
                SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port),
            ],
        }
    }
}

impl FromStr for ListenAddress {
    type Err = ParseListenAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        if text.is_empty() || text == "0" {
            return Ok(Self::Off);
        }
        let invalid = || ParseListenAddressError { text: text.to_owned() };
        let (host, port) = text.rsplit_once(':').ok_or_else(invalid)?;
        let port = port.parse().ok().ok_or_else(invalid)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Ok(Self::AllInterfaces(port));
        }
        let ip = if host == "localhost" {
            IpAddr::V4(Ipv4Addr::LOCALHOST)
        } else {
            host.parse().ok().ok_or_else(invalid)?
        };
        Ok(Self::Single(SocketAddr::new(ip, port)))
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => formatter.write_str("0"),
            Self::Single(address) => address.fmt(formatter),
            Self::AllInterfaces(port) => write!(formatter, ":{port}"),
        }
    }
}

/// A text is no address to listen on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no address to listen on: give `IP:PORT`, `:PORT` for every interface, or `0`")]
pub struct ParseListenAddressError {
    /// The text.
    pub text: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_in_go() {
        let cases = [
            ("127.0.0.1:8095", Some("127.0.0.1:8095")),
            ("localhost:8095", Some("127.0.0.1:8095")),
            ("[::1]:8095", Some("[::1]:8095")),
            (":8095", Some(":8095")),
            ("0", Some("0")),
            ("", Some("0")),
            ("8095", None),
            (":http", None),
            (":70000", None),
            ("metrics.example:8095", None),
        ];
        for (text, expected) in cases {
            let parsed = text.parse::<ListenAddress>().ok().map(|it| it.to_string());
            assert_eq!(parsed.as_deref(), expected, "{text}");
        }
    }
}
