//! The DNS domain of a custom cloud.

use std::fmt;
use std::str::FromStr;

use url::Host;

/// The domain of a custom cloud, and the port in its URLs: `azure.test` or `azure.test:443`.
///
/// Clients reach the services of the cloud at names below the domain, such as `management.azure.test`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloudDomain {
    /// In lower case, without a trailing dot.
    domain: String,
    port: Option<u16>,
}

/// A text cannot be the domain and port of a custom cloud.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseCloudDomainError {
    /// The domain is not a DNS name.
    #[error("`{0}` is not a DNS name with at least two labels")]
    Domain(String),
    /// The port is not a number from 1 to 65535.
    #[error("`{0}` is not a port")]
    Port(String),
    /// The host names of the cloud would be those of another cloud.
    #[error("names below `{domain}` collide with `{azure}`, a name of Azure")]
    Azure {
        /// The domain.
        domain: String,
        /// The DNS name of Azure with which the names collide.
        azure: String,
    },
}

impl CloudDomain {
    /// The domain, in lower case.
    pub fn as_str(&self) -> &str {
        &self.domain
    }

    /// The port in URLs; `None` for the port of the listener.
    pub const fn port(&self) -> Option<u16> {
        self.port
    }
}

impl fmt::Display for CloudDomain {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.domain)?;
        self.port.map_or(Ok(()), |port| write!(formatter, ":{port}"))
    }
}

impl FromStr for CloudDomain {
    type Err = ParseCloudDomainError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (domain, port) = match text.split_once(':') {
            None => (text, None),
            Some((domain, port)) => {
                let number = port.parse().ok().filter(|number| *number != 0);
                let invalid = || ParseCloudDomainError::Port(port.to_owned());
                (domain, Some(number.ok_or_else(invalid)?))
            }
        };
        let domain = domain.to_ascii_lowercase();
        if !is_domain(&domain) {
            return Err(ParseCloudDomainError::Domain(domain));
        }
        if let Some(azure) = crate::azure_clouds::EmulatedCloud::colliding_azure_name(&domain) {
            return Err(ParseCloudDomainError::Azure { domain, azure });
        }
        Ok(Self { domain, port })
    }
}

/// Whether a text is a DNS name of at least two labels. The longest name of a service has 100 more characters.
fn is_domain(text: &str) -> bool {
    let is_label = |label: &str| {
        let is_inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
        (1..=63).contains(&label.len())
            && label.bytes().all(is_inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= 150
        && text.contains('.')
        && text.split('.').all(is_label)
        // A name whose last label is a number is an IPv4 address.
        && matches!(Host::parse(text), Ok(Host::Domain(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domain_and_port_round_trip() {
        for (text, domain, port) in [
            ("azure.test", "azure.test", None),
            ("azure.test:443", "azure.test", Some(443)),
            ("lab-1.example.com:8443", "lab-1.example.com", Some(8443)),
        ] {
            let parsed: CloudDomain = text.parse().unwrap();
            assert_eq!((parsed.as_str(), parsed.port()), (domain, port));
            assert_eq!(parsed.to_string(), text);
        }
        assert_eq!("Azure.TEST".parse::<CloudDomain>().unwrap().as_str(), "azure.test");
    }

    #[test]
    fn invalid_domains_and_ports_are_rejected() {
        for text in [
            "",
            "test",
            "azure..test",
            ".azure.test",
            "azure.test.",
            "-azure.test",
            "azure_stack.test",
            "10.0.0.1",
            "azure.1",
            "https://azure.test",
            "azure.test:0",
            "azure.test:",
            "azure.test:65536",
            "azure.test:80:80",
        ] {
            assert!(text.parse::<CloudDomain>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn domains_with_names_of_azure_are_rejected() {
        for text in [
            "azure.com",
            "azure.net",
            "windows.net",
            "microsoft.com",
            "kv.vault.azure.net",
            "account.core.windows.net",
            "azure.cn",
        ] {
            let error = text.parse::<CloudDomain>().unwrap_err();
            assert!(matches!(error, ParseCloudDomainError::Azure { .. }), "{text}: {error}");
        }
    }
}
