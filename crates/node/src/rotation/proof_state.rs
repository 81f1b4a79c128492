//! Whether a volume can be looked at without the kubelet.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use lanyard_keyvault::Proofs;

/// Whether what a pod brought to prove who it is still serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProofState {
    /// It does, or nothing is needed.
    Good,
    /// It does not: the kubelet's next publish brings a new one.
    Awaited,
}

/// Whether a volume with these parameters can be filled with these proofs at `now`.
///
/// A managed identity of the node needs nothing of the pod. Whether another provider needs the
/// tokens is not known: it is assumed where the kubelet gave some, and `proofs` is nothing for a
/// volume of an earlier process, whose proofs nobody wrote down.
pub fn proof_state(
    provider: Option<&str>,
    parameters: &BTreeMap<String, String>,
    proofs: Option<&Proofs>,
    now: Timestamp,
) -> ProofState {
    let is_true = |key| {
        let truths = ["1", "t", "T", "TRUE", "true", "True"];
        parameters.get(key).is_some_and(|text| truths.contains(&text.trim()))
    };
    if provider == Some(AZURE) && is_true("useVMManagedIdentity") {
        return ProofState::Good;
    }
    let Some(proofs) = proofs else { return ProofState::Awaited };
    let usable = now.saturating_add(LEAST_VALIDITY).unwrap_or(Timestamp::MAX);
    let expired = proofs.tokens.0.values().any(|token| token.expires <= usable);
    if expired { ProofState::Awaited } else { ProofState::Good }
}

const AZURE: &str = "azure";

/// A token must last for the calls that it is presented in.
const LEAST_VALIDITY: SignedDuration = SignedDuration::from_secs(30);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lanyard_keyvault::{SecretBytes, ServiceAccountToken};

    use super::*;

    fn proofs(expires: i64) -> Proofs {
        let token = Arc::new(SecretBytes::from("token".to_owned()));
        let expires = Timestamp::from_second(expires).unwrap();
        let mut proofs = Proofs::default();
        proofs.tokens.0.insert(
            "api://AzureADTokenExchange".to_owned(),
            ServiceAccountToken { token, expires },
        );
        proofs
    }

    #[test]
    fn a_volume_waits_for_the_kubelet_where_its_token_expired_or_died_with_the_process() {
        let now = Timestamp::from_second(1_000).unwrap();
        let managed = [("useVMManagedIdentity".to_owned(), "true".to_owned())].into();
        let workload = [("clientID".to_owned(), "id".to_owned())].into();
        let (old, new, none) = (proofs(1_010), proofs(2_000), Proofs::default());
        for (provider, parameters, proofs, expected) in [
            ("azure", &managed, Some(&old), ProofState::Good),
            ("azure", &managed, None, ProofState::Good),
            ("azure", &workload, Some(&new), ProofState::Good),
            ("azure", &workload, Some(&old), ProofState::Awaited),
            ("azure", &workload, None, ProofState::Awaited),
            ("mock", &managed, Some(&old), ProofState::Awaited),
            ("mock", &workload, Some(&none), ProofState::Good),
        ] {
            let state = proof_state(Some(provider), parameters, proofs, now);
            assert_eq!(state, expected, "{provider} {parameters:?} {proofs:?}");
        }
    }
}
