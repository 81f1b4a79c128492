//! The codes of what can become of a volume: one for each failure that a person may be paged for.
//!
//! A code is stable. It is the reason of an event, the label of a metric, a field of a log line and
//! a heading of `docs/outcomes.md`, which is generated from this table. Where the Secrets Store CSI
//! driver (v1.6.0) has a reason for the same thing, its spelling is kept.

use std::fmt;

use serde::Serialize;

use crate::hop::Hop;

/// What the same request comes to if nobody changes anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecoveryMode {
    /// It stays as it is until somebody changes the request, the class, the policy or Azure. The
    /// kubelet asks again all the same, so the message says it.
    Never,
    /// It may heal by itself.
    ByItself,
}

/// One row of the table of outcome codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct OutcomeCodeDetails {
    /// The stable name, in the form of an event reason.
    pub name: &'static str,
    /// The hop that is to blame.
    pub hop: Hop,
    /// Whether it heals without a change.
    pub healing: RecoveryMode,
    /// What happened, in one sentence.
    pub meaning: &'static str,
    /// What to do next.
    pub hint: &'static str,
}

macro_rules! outcome_codes {
    ($($variant:ident, $name:literal, $hop:ident, $healing:ident, $meaning:literal, $hint:literal;)*) => {
        /// What can become of a volume, other than that all is well.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(into = "&'static str")]
        #[non_exhaustive]
        pub enum OutcomeCode {
            $(#[doc = $meaning] $variant,)*
        }

        impl OutcomeCode {
            /// Every code, in the order of the hops.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// What stands about it in the table.
            pub const fn text(self) -> OutcomeCodeDetails {
                match self {
                    $(Self::$variant => OutcomeCodeDetails {
                        name: $name,
                        hop: Hop::$hop,
                        healing: RecoveryMode::$healing,
                        meaning: $meaning,
                        hint: $hint,
                    },)*
                }
            }
        }
    };
}

outcome_codes! {
    SecretProviderClassNotFound, "SecretProviderClassNotFound", SecretProviderClass, ByItself,
        "The SecretProviderClass that the volume names is not in the pod's namespace.",
        "create the class in the pod's namespace, or correct `secretProviderClass` of the volume";
    SecretProviderClassInvalid, "SecretProviderClassInvalid", SecretProviderClass, Never,
        "The SecretProviderClass cannot be used as it is written.",
        "correct the fields that the message names";
    ClassSourceUnavailable, "ClassSourceUnavailable", SecretProviderClass, ByItself,
        "The Kubernetes API did not answer the question for the SecretProviderClass.",
        "see the health of the Kubernetes API and the RBAC of the node plugin's service account";
    InvalidRequest, "InvalidRequest", Volume, Never,
        "The request for the volume is not one that can be served.",
        "correct the volume of the pod: `readOnly: true`, `volumeAttributes.secretProviderClass`";
    FailedToEnsureMountPoint, "FailedToEnsureMountPoint", Volume, ByItself,
        "The directory of the volume could not be made, looked at or cleared.",
        "look at the kubelet's directory on the node: disk, permissions, mounts left behind";
    FailedToMount, "FailedToMount", Volume, ByItself,
        "The memory file system of the volume could not be mounted.",
        "see that the node plugin is privileged and the kubelet directory is mounted Bidirectional";
    PolicyDenied, "PolicyDenied", Volume, Never,
        "The node's policy does not let this namespace read the object through a shared identity.",
        "add a rule to the policy (`lanyard node policy suggest`), or use a workload identity";
    InvalidProvider, "InvalidProvider", Volume, Never,
        "The name of the provider is not one.",
        "give `spec.provider` at most 30 letters, digits, `_` and `-`";
    ProviderNotFound, "ProviderNotFound", Volume, ByItself,
        "No provider of that name listens on this node.",
        "install the provider, or correct `spec.provider`; its socket must lie in a provider directory";
    ProviderUnavailable, "ProviderUnavailable", Volume, ByItself,
        "The provider did not answer.",
        "look at the provider's pod on this node";
    ProviderError, "GRPCProviderError", Volume, ByItself,
        "The provider refused or failed.",
        "see the provider's message and its log";
    ProviderAnswerInvalid, "ProviderAnswerInvalid", Volume, ByItself,
        "The provider's answer is not one that can be mounted.",
        "see the provider's version; `--max-call-recv-msg-size` bounds the size of an answer";
    TokenNotFound, "ServiceAccountTokenNotFound", ImdsToken, Never,
        "The kubelet gave no service account token for the audience that the identity needs.",
        "set `tokenRequests` of the CSIDriver object to the audience that the message names";
    CredentialsNotFound, "NodePublishSecretRefNotFound", ImdsToken, Never,
        "The class uses a service principal, and the volume brings no client id and secret.",
        "give the volume a `nodePublishSecretRef` with `clientid` and `clientsecret`, or the class an identity";
    IdentityNotAssigned, "IdentityNotAssigned", ImdsToken, Never,
        "The managed identity is not assigned to this node.",
        "assign the identity to the node's scale set, or correct `userAssignedIdentityID`";
    IdentityRefused, "IdentityRefused", ImdsToken, Never,
        "The token service refused the identity.",
        "see the code in the message: federated credential, client id, tenant, secret or certificate";
    TokenUnavailable, "TokenUnavailable", ImdsToken, ByItself,
        "The token service was not reached, failed or throttles.",
        "see the node's way to the instance metadata service or to Entra ID: routes, proxy, DNS";
    ObjectNotFound, "ObjectNotFound", VaultRead, Never,
        "The vault has no such object or version.",
        "check objectName, objectType and objectVersion; a deleted object has to be recovered";
    ObjectDisabled, "ObjectDisabled", VaultRead, Never,
        "The version of the object is disabled.",
        "enable the version, or name another one in objectVersion";
    ObjectExpired, "ObjectExpired", VaultRead, ByItself,
        "The mounted version of the object has expired, and the vault has no newer one.",
        "renew the object in the vault, or see why what renews it is late; the volume follows by itself";
    VaultForbidden, "VaultForbidden", VaultRead, Never,
        "The vault does not let the identity read the object.",
        "assign `Key Vault Secrets User` at the narrowest scope, and see the vault's network rules";
    VaultThrottled, "VaultThrottled", VaultRead, ByItself,
        "The vault throttles, or asked to be left alone, or this node's own share of requests to it \
         is used up.",
        "wait; every client of the vault shares its limit, so read less often or spread the objects; \
         where it is this node's own share, raise --vault-requests-per-second";
    VaultUnavailable, "VaultUnavailable", VaultRead, ByItself,
        "The vault failed on its side or was not reached.",
        "check keyvaultName, DNS, the vault's firewall, and the health of Key Vault in the region";
    VaultUntrusted, "VaultUntrusted", VaultRead, Never,
        "The host that answers is not a vault to send a token to.",
        "check cloudName and that no proxy answers in the vault's place";
    ServedStale, "ServedStale", VaultRead, ByItself,
        "The vault could not be read, and the volume was filled from the sealed cache of the node.",
        "treat it as an outage of the vault: the cache is served up to its maximum age only";
    DecodeFailed, "DecodeFailed", Decode, Never,
        "The object was read but cannot become its file.",
        "compare objectEncoding and objectFormat with what the vault holds";
    FileWriteError, "FileWriteError", File, ByItself,
        "The files could not be written into the volume.",
        "look at the node's memory; where the message names a path, correct objectAlias";
    VolumeMemoryExhausted, "VolumeMemoryExhausted", File, ByItself,
        "The content does not fit into the memory that the volumes of the node may hold together.",
        "give the node plugin more memory, ask for fewer or smaller objects, or spread the pods over more nodes";
    CredentialOlder, "CredentialOlder", File, Never,
        "The vault gave a credential that is older than the mounted one, and it was refused.",
        "if the roll-back is meant, annotate the class with `lanyard.dev/accept-older`";
    StatusNotWritten, "StatusNotWritten", File, ByItself,
        "The volume is mounted, and its status could not be written to the Kubernetes API.",
        "see the health of the Kubernetes API and the RBAC of the node plugin's service account";
    SecretNotSynced, "FailedToCreateSecret", File, ByItself,
        "The volume is mounted, and a Kubernetes Secret could not be kept in step with it.",
        "see the message; the synchronization of Secrets needs `syncSecret.enabled` of the chart";
}

impl OutcomeCode {
    /// The stable name.
    pub const fn name(self) -> &'static str {
        self.text().name
    }

    /// The hop that is to blame.
    pub const fn hop(self) -> Hop {
        self.text().hop
    }

    /// What to do next, where the error itself knows nothing better.
    pub const fn hint(self) -> &'static str {
        self.text().hint
    }

    /// Whether it heals without a change.
    pub const fn recovery_mode(self) -> RecoveryMode {
        self.text().healing
    }
}

impl From<OutcomeCode> for &'static str {
    fn from(code: OutcomeCode) -> Self {
        code.name()
    }
}

impl fmt::Display for OutcomeCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_fit_an_event_reason_and_a_label() {
        let mut names: Vec<_> = OutcomeCode::ALL.iter().map(|code| code.name()).collect();
        assert!(names.iter().all(|name| name.len() <= 63));
        assert!(names.iter().all(|name| name.chars().all(|it| it.is_ascii_alphanumeric())));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), OutcomeCode::ALL.len());
    }

    #[test]
    fn every_code_has_a_meaning_and_a_hint() {
        for code in OutcomeCode::ALL {
            let text = code.text();
            assert!(text.meaning.ends_with('.'), "{code}");
            assert!(!text.hint.is_empty() && !text.hint.ends_with('.'), "{code}");
        }
    }

    #[test]
    fn codes_are_ordered_by_hop() {
        assert!(OutcomeCode::ALL.is_sorted_by_key(|code| code.hop()));
    }
}
