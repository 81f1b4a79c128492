//! Listen addresses in the format of Go programs.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// A listen address: `127.0.0.1:8095`, `:8095` (all interfaces) or `0` (disabled).
///
/// The format is that of the Secrets Store CSI driver's `--metrics-addr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenAddress {
    /// The endpoint is disabled.
    Off,
    /// One IP address and port.
    Single(SocketAddr),
    /// This port on all interfaces, for IPv4 and IPv6 if the machine has both. With
    /// `net.ipv6.bindv6only` set to 1 (the default is 0), for IPv6 only.
    AllInterfaces(u16),
}

impl ListenAddress {
    /// The addresses to try in this order: a machine may have only one IP family.
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

/// A text that is not a listen address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a listen address: use `IP:PORT`, `:PORT` for every interface, or `0`")]
pub struct ParseListenAddressError {
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
