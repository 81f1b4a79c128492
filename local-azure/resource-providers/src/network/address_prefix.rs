//! IP address prefixes, such as `10.0.0.0/16`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A range of IP addresses with a common prefix. In `address`, the bits after the prefix are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AddressPrefix {
    address: IpAddr,
    /// The number of bits in the prefix.
    length: u8,
}

/// A text is not a valid address prefix in CIDR notation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ParseAddressPrefixError {
    #[error(
        "Address prefix {text} is not formatted correctly. It should follow CIDR notation, for example 10.0.0.0/24."
    )]
    Format { text: String },
    /// The address has bits after the prefix; `expected` is the range without them.
    #[error(
        "The address prefix {text} has an invalid CIDR notation. For the given prefix length, the address prefix should be {expected}."
    )]
    HostBits { text: String, expected: AddressPrefix },
}

impl ParseAddressPrefixError {
    /// The error code of the network resource provider.
    pub(super) const fn code(&self) -> &'static str {
        match self {
            Self::Format { .. } => "InvalidAddressPrefixFormat",
            Self::HostBits { .. } => "InvalidCIDRNotation",
        }
    }
}

impl AddressPrefix {
    const fn width(&self) -> u8 {
        match self.address {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        }
    }

    /// Returns the address as a number; an IPv4 address fills the highest 32 bits.
    fn bits(&self) -> u128 {
        match self.address {
            IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
            IpAddr::V6(address) => address.to_bits(),
        }
    }

    /// Whether the range contains all addresses of `other`.
    pub(super) fn contains(&self, other: &Self) -> bool {
        self.width() == other.width()
            && self.length <= other.length
            && fixed_bits(other.bits(), self.length) == self.bits()
    }

    /// Whether the ranges have an address in common.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.contains(other) || other.contains(self)
    }

    /// Returns the address at the index `n`; `None` if the range is smaller.
    pub(super) fn address_at(&self, n: u32) -> Option<IpAddr> {
        let addresses = 1_u128.checked_shl(u32::from(self.width() - self.length));
        if addresses.is_some_and(|addresses| u128::from(n) >= addresses) {
            return None;
        }
        Some(match self.address {
            IpAddr::V4(address) => IpAddr::V4((address.to_bits().checked_add(n)?).into()),
            IpAddr::V6(address) => IpAddr::V6((address.to_bits().checked_add(n.into())?).into()),
        })
    }
}

/// Returns `bits` with all but the first `length` bits set to zero.
fn fixed_bits(bits: u128, length: u8) -> u128 {
    let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
    bits & mask
}

impl FromStr for AddressPrefix {
    type Err = ParseAddressPrefixError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let malformed = || ParseAddressPrefixError::Format { text: text.to_owned() };
        let (address, length) = text.split_once('/').ok_or_else(malformed)?;
        let address: IpAddr = address.parse().or(Err(malformed()))?;
        let length: u8 = length.parse().or(Err(malformed()))?;
        let prefix = Self { address, length };
        if length > prefix.width() {
            return Err(malformed());
        }
        let fixed = fixed_bits(prefix.bits(), length);
        if fixed == prefix.bits() {
            return Ok(prefix);
        }
        let address = match address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
                IpAddr::V4((address.to_bits() & mask).into())
            }
            IpAddr::V6(_) => IpAddr::V6(fixed.into()),
        };
        let expected = Self { address, length };
        Err(ParseAddressPrefixError::HostBits { text: text.to_owned(), expected })
    }
}

impl fmt::Display for AddressPrefix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.length)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn prefix(text: &str) -> AddressPrefix {
        text.parse().unwrap()
    }

    #[test]
    fn prefixes_contain_and_overlap_by_their_fixed_bits() {
        let cases = [
            ("10.0.0.0/16", "10.0.1.0/24", true, true),
            ("10.0.1.0/24", "10.0.0.0/16", false, true),
            ("10.0.0.0/16", "10.1.0.0/16", false, false),
            ("0.0.0.0/0", "10.0.0.0/8", true, true),
            ("fd00::/48", "fd00:0:0:1::/64", true, true),
            ("::/0", "10.0.0.0/8", false, false),
        ];
        for (one, other, contains, overlaps) in cases {
            assert_eq!(prefix(one).contains(&prefix(other)), contains, "{one} {other}");
            assert_eq!(prefix(one).overlaps(&prefix(other)), overlaps, "{one} {other}");
        }
    }

    #[test]
    fn addresses_are_counted_from_the_start_of_the_range() {
        assert_eq!(prefix("10.0.0.0/24").address_at(4).unwrap().to_string(), "10.0.0.4");
        assert_eq!(prefix("10.0.0.0/30").address_at(4), None);
        assert_eq!(prefix("::/0").address_at(1).unwrap().to_string(), "::1");
    }

    #[test]
    fn invalid_prefixes_are_rejected() {
        for text in ["", "10.0.0.0", "10.0.0/8", "10.0.0.0/33", "a/8", "10.0.0.0/x"] {
            let error = text.parse::<AddressPrefix>().unwrap_err();
            assert_eq!(error.code(), "InvalidAddressPrefixFormat", "{text}");
        }
        for (text, expected) in [("10.1.1.0/16", "10.1.0.0/16"), ("fd00::1/64", "fd00::/64")] {
            let error = text.parse::<AddressPrefix>().unwrap_err();
            assert_eq!(error.code(), "InvalidCIDRNotation");
            assert!(error.to_string().ends_with(&format!("should be {expected}.")), "{error}");
        }
    }

    proptest! {
        #[test]
        fn a_prefix_contains_itself_and_prints_as_it_was_parsed(bits: u32, length in 0_u8..=32) {
            let address = u32::try_from(fixed_bits(u128::from(bits) << 96, length) >> 96).unwrap();
            let text = format!("{}/{length}", std::net::Ipv4Addr::from(address));
            let prefix = prefix(&text);
            prop_assert!(prefix.contains(&prefix));
            prop_assert_eq!(prefix.to_string(), text);
        }
    }
}
