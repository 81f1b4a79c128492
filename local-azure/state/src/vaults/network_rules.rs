//! The firewall of a vault.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Which clients may reach a vault by its public endpoint.
///
/// The emulator does not know the networks of clients: no client comes from a virtual network, and the rules do
/// not apply to a vault with a private endpoint, because all clients use it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VaultNetworkRules {
    /// `publicNetworkAccess` is `Enabled`.
    pub has_public_access: bool,
    /// `networkAcls.defaultAction` is `Deny`: only the addresses of `ip_rules` have access.
    pub denies_by_default: bool,
    /// `networkAcls.ipRules`.
    pub ip_rules: Vec<Ipv4Range>,
}

impl Default for VaultNetworkRules {
    fn default() -> Self {
        Self { has_public_access: true, denies_by_default: false, ip_rules: Vec::new() }
    }
}

/// Why a firewall rejects a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirewallRejection {
    PublicAccessDisabled,
    AddressNotPermitted(IpAddr),
}

impl VaultNetworkRules {
    /// Checks the address of a client.
    pub fn check(&self, client: IpAddr) -> Result<(), FirewallRejection> {
        if !self.has_public_access {
            return Err(FirewallRejection::PublicAccessDisabled);
        }
        let client = client.to_canonical();
        let is_listed = match client {
            IpAddr::V4(address) => self.ip_rules.iter().any(|range| range.contains(address)),
            IpAddr::V6(_) => false,
        };
        if self.denies_by_default && !is_listed {
            return Err(FirewallRejection::AddressNotPermitted(client));
        }
        Ok(())
    }
}

/// A range of IPv4 addresses: `192.0.2.1`, or `192.0.2.0/24`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Ipv4Range {
    first: Ipv4Addr,
    prefix_length: u8,
}

/// A text is not a range of IPv4 addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an IPv4 address or range such as `192.0.2.0/24`")]
pub struct ParseIpv4RangeError(String);

impl Ipv4Range {
    fn contains(self, address: Ipv4Addr) -> bool {
        let host_bits = 32 - u32::from(self.prefix_length);
        let mask = u32::MAX.checked_shl(host_bits).unwrap_or(0);
        u32::from(address) & mask == u32::from(self.first) & mask
    }
}

impl FromStr for Ipv4Range {
    type Err = ParseIpv4RangeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (address, length) = text.split_once('/').unwrap_or((text, "32"));
        match (address.parse(), length.parse::<u8>()) {
            (Ok(first), Ok(prefix_length)) if prefix_length <= 32 => {
                Ok(Self { first, prefix_length })
            }
            _ => Err(ParseIpv4RangeError(text.to_owned())),
        }
    }
}

impl fmt::Display for Ipv4Range {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.first, self.prefix_length)
    }
}

impl TryFrom<String> for Ipv4Range {
    type Error = ParseIpv4RangeError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Ipv4Range> for String {
    fn from(range: Ipv4Range) -> Self {
        range.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_outside_of_the_ranges_are_rejected_by_default_deny_only() {
        let ip_rules = ["203.0.113.0/24", "198.51.100.7"].map(|text| text.parse().unwrap());
        let mut rules =
            VaultNetworkRules { ip_rules: ip_rules.to_vec(), ..VaultNetworkRules::default() };
        let cases = [
            ("203.0.113.255", true),
            ("::ffff:203.0.113.1", true),
            ("203.0.114.0", false),
            ("198.51.100.7", true),
            ("198.51.100.8", false),
            ("::1", false),
        ];
        for (address, listed) in cases {
            let address: IpAddr = address.parse().unwrap();
            rules.denies_by_default = false;
            assert!(rules.check(address).is_ok(), "{address}");
            rules.denies_by_default = true;
            assert_eq!(rules.check(address).is_ok(), listed, "{address}");
        }
        rules.has_public_access = false;
        let rejected = rules.check("203.0.113.1".parse().unwrap());
        assert_eq!(rejected, Err(FirewallRejection::PublicAccessDisabled));
    }

    #[test]
    fn only_ipv4_ranges_are_parsed() {
        for (text, first) in [("0.0.0.0/0", "192.0.2.1"), ("10.0.0.1/32", "10.0.0.1")] {
            assert!(text.parse::<Ipv4Range>().unwrap().contains(first.parse().unwrap()), "{text}");
        }
        for text in ["", "10.0.0.0/33", "10.0.0", "::1", "10.0.0.0/", "10.0.0.0/8/8"] {
            assert!(text.parse::<Ipv4Range>().is_err(), "{text}");
        }
    }
}
