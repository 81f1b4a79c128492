//! Decides whether a volume can be polled without the kubelet.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use lanyard_keyvault::PodCredentials;

/// Whether the pod tokens of a volume can still be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodTokenState {
    /// The tokens are valid, or the provider needs none.
    Usable,
    /// The tokens have expired; the kubelet's next publish brings new ones.
    Expired,
}

/// Whether the content of a volume with these class parameters can be fetched with `pod_credentials` at
/// `now`.
///
/// A managed identity of the node needs no pod token. For other providers it is unknown whether
/// they need the tokens, so they are assumed to if the kubelet sent some. `pod_credentials` is `None` for a
/// volume of an earlier process, because tokens are not stored on disk.
pub fn pod_token_state(
    provider: Option<&str>,
    parameters: &BTreeMap<String, String>,
    pod_credentials: Option<&PodCredentials>,
    now: Timestamp,
) -> PodTokenState {
    let is_true = |key| {
        let truths = ["1", "t", "T", "TRUE", "true", "True"];
        parameters.get(key).is_some_and(|text| truths.contains(&text.trim()))
    };
    if provider == Some(AZURE_PROVIDER) && is_true("useVMManagedIdentity") {
        return PodTokenState::Usable;
    }
    let Some(pod_credentials) = pod_credentials else { return PodTokenState::Expired };
    let usable = now.saturating_add(MIN_TOKEN_VALIDITY).unwrap_or(Timestamp::MAX);
    let expired = pod_credentials.tokens.0.values().any(|token| token.expires <= usable);
    if expired { PodTokenState::Expired } else { PodTokenState::Usable }
}

const AZURE_PROVIDER: &str = "azure";

/// A token must stay valid for the calls that use it.
const MIN_TOKEN_VALIDITY: SignedDuration = SignedDuration::from_secs(30);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lanyard_keyvault::{ServiceAccountToken, SharedSecretBytes};

    use super::*;

    fn credentials_expiring_at(expires: i64) -> PodCredentials {
        let token = Arc::new(SharedSecretBytes::from("token".to_owned()));
        let expires = Timestamp::from_second(expires).unwrap();
        let mut pod_credentials = PodCredentials::default();
        pod_credentials.tokens.0.insert(
            "api://AzureADTokenExchange".to_owned(),
            ServiceAccountToken { token, expires },
        );
        pod_credentials
    }

    #[test]
    fn volume_with_expired_or_lost_token_waits_for_the_kubelet() {
        let now = Timestamp::from_second(1_000).unwrap();
        let managed = [("useVMManagedIdentity".to_owned(), "true".to_owned())].into();
        let workload = [("clientID".to_owned(), "id".to_owned())].into();
        let (old, new, none) = (
            credentials_expiring_at(1_010),
            credentials_expiring_at(2_000),
            PodCredentials::default(),
        );
        for (provider, parameters, pod_credentials, expected) in [
            ("azure", &managed, Some(&old), PodTokenState::Usable),
            ("azure", &managed, None, PodTokenState::Usable),
            ("azure", &workload, Some(&new), PodTokenState::Usable),
            ("azure", &workload, Some(&old), PodTokenState::Expired),
            ("azure", &workload, None, PodTokenState::Expired),
            ("mock", &managed, Some(&old), PodTokenState::Expired),
            ("mock", &workload, Some(&none), PodTokenState::Usable),
        ] {
            let state = pod_token_state(Some(provider), parameters, pod_credentials, now);
            assert_eq!(state, expected, "{provider} {parameters:?} {pod_credentials:?}");
        }
    }
}
