//! Identity bindings: workload identity through the token proxy of a cluster.
//!
//! AKS serves token requests at the API server's address. The client selects the cluster's proxy by its TLS
//! server name, sends the same request as to Entra, and authenticates with a service account token for a
//! special audience. The federated credential belongs to the cluster and not to the identity: Entra itself
//! rejects the token.

use aws_lc_rs::digest::{SHA256, digest};
use lanyard_vocabulary::EntraClientId;
use serde::{Deserialize, Serialize};

use crate::directory::FederatedCredential;

/// The audience of tokens for the proxy.
pub const PROXY_TOKEN_AUDIENCE: &str = "api://AKSIdentityBinding";
/// The suffix of the server names.
pub(crate) const SUFFIX: &str = "ests.aks";
/// The prefix of the cluster's id in the digest.
const SALT: &str = "identity-binding";
/// The digits of base32hex (RFC 4648, 7), in lower case.
const BASE32_HEX_DIGITS: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";
/// The length of a SHA-256 digest in base32.
const CLUSTER_LABEL_DIGITS: usize = 52;

/// The permission of a cluster's ServiceAccount to use a managed identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IdentityBinding {
    /// The server name of the cluster's proxy.
    pub server_name: String,
    /// The client id of the managed identity.
    pub client_id: EntraClientId,
    /// The issuer of the cluster's ServiceAccount tokens.
    pub issuer: String,
    /// `system:serviceaccount:<namespace>:<name>`.
    pub subject: String,
}

impl IdentityBinding {
    /// The federated credential that the proxy checks tokens against.
    pub fn federated_credential(&self) -> FederatedCredential {
        FederatedCredential::new(
            &self.server_name,
            &self.issuer,
            &self.subject,
            PROXY_TOKEN_AUDIENCE,
        )
    }
}

/// The server name of a cluster's proxy: `a`, the digest of its id, `.ests.aks`.
pub fn proxy_server_name(cluster_id: &str) -> String {
    let digest = digest(&SHA256, format!("{SALT}{cluster_id}").as_bytes());
    format!("a{}.{SUFFIX}", base32_hex(digest.as_ref()))
}

/// Whether a host has the form of a proxy's server name.
pub fn is_proxy_server_name(host: &str) -> bool {
    let label = host.strip_suffix(SUFFIX).and_then(|head| head.strip_suffix('.'));
    label.and_then(|label| label.strip_prefix('a')).is_some_and(|digits| {
        digits.len() == CLUSTER_LABEL_DIGITS
            && digits.bytes().all(|digit| BASE32_HEX_DIGITS.contains(&digit))
    })
}

/// Encodes bytes as base32hex in lower case, without padding.
fn base32_hex(bytes: &[u8]) -> String {
    let (mut text, mut rest, mut bits) = (String::new(), 0_u16, 0);
    let mut push = |five: u16| {
        text.push(char::from(BASE32_HEX_DIGITS[usize::from(five & 0x1f)]));
    };
    for byte in bytes {
        rest = (rest & 0x1f) << 8 | u16::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            push(rest >> bits);
        }
    }
    if bits > 0 {
        push(rest << (5 - bits));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base32_hex_matches_rfc_4648() {
        for (bytes, expected) in [
            ("", ""),
            ("f", "co"),
            ("fo", "cpng"),
            ("foo", "cpnmu"),
            ("foob", "cpnmuog"),
            ("fooba", "cpnmuoj1"),
            ("foobar", "cpnmuoj1e8"),
        ] {
            assert_eq!(base32_hex(bytes.as_bytes()), expected);
        }
    }

    #[test]
    fn proxy_server_name_is_one_label_unique_to_its_cluster() {
        let name = proxy_server_name("696995ccb303450001b31a18");
        assert!(is_proxy_server_name(&name), "{name}");
        assert_ne!(name, proxy_server_name("696995ccb303450001b31a19"));
        let label = "a".repeat(53);
        for wrong in [
            "ests.aks".to_owned(),
            format!("{label}.ests.aks.example.com"),
            format!("x.{label}.ests.aks"),
            format!("{label}a.ests.aks"),
            format!("b{}.ests.aks", "a".repeat(52)),
            format!("a{}.ests.aks", "z".repeat(52)),
            label,
        ] {
            assert!(!is_proxy_server_name(&wrong), "{wrong}");
        }
    }
}
