//! Outcome codes: one code for each failure of a volume that an operator may be paged for.
//!
//! A code is stable. It is the reason of an event, the label of a metric, a field of a log line and a heading
//! of `docs/reference/outcomes.md`, which is generated from this table. Codes for which the Secrets Store CSI driver
//! (v1.6.0) has a reason use its spelling.

use serde::Serialize;

use crate::hop::Hop;

/// Whether repeating a request can succeed without a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecoveryMode {
    /// An operator has to change the request, the class, the policy or Azure first. The kubelet retries
    /// nevertheless, so the message points this out.
    Never,
    /// The failure may go away without a change.
    ByItself,
}

/// The details of an outcome code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct OutcomeCodeDetails {
    /// The stable name, in the form of an event reason.
    pub name: &'static str,
    /// The hop that failed.
    pub hop: Hop,
    /// Whether the failure may go away without a change.
    pub healing: RecoveryMode,
    /// The description of the failure, in one sentence.
    pub meaning: &'static str,
    /// Advises what to do next.
    pub hint: &'static str,
}

macro_rules! outcome_codes {
    ($($variant:ident, $name:literal, $hop:ident, $healing:ident, $meaning:literal, $hint:literal;)*) => {
        /// The outcome code of a failed volume operation.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(into = "&'static str")]
        #[non_exhaustive]
        pub enum OutcomeCode {
            $(#[doc = $meaning] $variant,)*
        }

        impl OutcomeCode {
            /// All codes, in the order of the hops.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The details of the code.
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
        "The SecretProviderClass is invalid.",
        "correct the fields that the message names";
    ClassSourceUnavailable, "ClassSourceUnavailable", SecretProviderClass, ByItself,
        "The Kubernetes API did not return the SecretProviderClass.",
        "check the health of the Kubernetes API and the RBAC of the node plugin's service account";
    InvalidRequest, "InvalidRequest", Volume, Never,
        "The request for the volume is invalid.",
        "correct the volume of the pod: `readOnly: true`, `volumeAttributes.secretProviderClass`";
    FailedToEnsureMountPoint, "FailedToEnsureMountPoint", Volume, ByItself,
        "The directory of the volume could not be created, inspected or cleared.",
        "check the kubelet's directory on the node: disk, permissions, leftover mounts";
    FailedToMount, "FailedToMount", Volume, ByItself,
        "The memory file system of the volume could not be mounted.",
        "check that the node plugin is privileged and the kubelet directory is mounted Bidirectional";
    PolicyDenied, "PolicyDenied", Volume, Never,
        "The node's policy does not let this namespace read the object through a shared identity.",
        "add a rule to the policy (`lanyard node policy suggest`), or use a workload identity";
    InvalidProvider, "InvalidProvider", Volume, Never,
        "The provider name is invalid.",
        "set `spec.provider` to at most 30 letters, digits, `_` and `-`";
    ProviderNotFound, "ProviderNotFound", Volume, ByItself,
        "No provider of that name listens on this node.",
        "install the provider, or correct `spec.provider`; its socket must be in a provider directory";
    ProviderUnavailable, "ProviderUnavailable", Volume, ByItself,
        "The provider did not respond.",
        "check the provider's pod on this node";
    ProviderError, "GRPCProviderError", Volume, ByItself,
        "The provider returned an error.",
        "read the provider's message and log";
    ProviderAnswerInvalid, "ProviderAnswerInvalid", Volume, ByItself,
        "The provider's response cannot be mounted.",
        "check the provider's version; `--max-call-recv-msg-size` limits the size of a response";
    TokenNotFound, "ServiceAccountTokenNotFound", ImdsToken, Never,
        "The kubelet passed no service account token for the audience that the identity needs.",
        "set `tokenRequests` of the CSIDriver object to the audience that the message names";
    CredentialsNotFound, "NodePublishSecretRefNotFound", ImdsToken, Never,
        "The class uses a service principal, and the volume has no client id and secret.",
        "give the volume a `nodePublishSecretRef` with `clientid` and `clientsecret`, or the class an identity";
    IdentityNotAssigned, "IdentityNotAssigned", ImdsToken, Never,
        "The managed identity is not assigned to this node.",
        "assign the identity to the node's scale set, or correct `userAssignedIdentityID`";
    IdentityRefused, "IdentityRefused", ImdsToken, Never,
        "The token service rejected the identity.",
        "check the error code of Entra ID (AADSTS...) in the message; it shows which one is wrong: \
         federated credential, client id, tenant, secret or certificate";
    TokenUnavailable, "TokenUnavailable", ImdsToken, ByItself,
        "The token service was unreachable, failed or throttled the request.",
        "check the node's connection to the instance metadata service or to Entra ID: routes, proxy, DNS";
    ObjectNotFound, "ObjectNotFound", VaultRead, Never,
        "The vault has no such object or version.",
        "check objectName, objectType and objectVersion; a deleted object has to be recovered";
    ObjectDisabled, "ObjectDisabled", VaultRead, Never,
        "The version of the object is disabled.",
        "enable the version, or name another one in objectVersion";
    ObjectExpired, "ObjectExpired", VaultRead, ByItself,
        "The mounted version of the object has expired, and the vault has no newer one.",
        "renew the object in the vault, or check why its renewal is late; the volume is updated automatically";
    VaultForbidden, "VaultForbidden", VaultRead, Never,
        "The identity has no permission to read the object.",
        "assign `Key Vault Secrets User` at the narrowest scope, and check the vault's network rules";
    VaultThrottled, "VaultThrottled", VaultRead, ByItself,
        "The vault throttled the request or requested a cool-down, or the node plugin's own rate limit \
         for this vault is used up.",
        "wait; every client of the vault shares its limit, so read less often or spread the objects; \
         if the node plugin's own rate limit is used up, raise --vault-requests-per-second";
    VaultUnavailable, "VaultUnavailable", VaultRead, ByItself,
        "The vault failed or was unreachable.",
        "check keyvaultName, DNS, the vault's firewall, and the health of Key Vault in the region";
    VaultUntrusted, "VaultUntrusted", VaultRead, Never,
        "The node sent no token: the vault's URL does not use HTTPS, or its authentication challenge names \
         another host.",
        "check cloudName, and that no proxy responds in the vault's place";
    ServedStale, "ServedStale", VaultRead, ByItself,
        "The vault could not be read, and the node served the volume from its sealed cache.",
        "treat it as an outage of the vault: the cache is served up to its maximum age only";
    DecodeFailed, "DecodeFailed", Decode, Never,
        "The object was read but cannot be converted to its file.",
        "compare objectEncoding and objectFormat with the vault's value";
    FileWriteError, "FileWriteError", File, ByItself,
        "The files could not be written into the volume.",
        "check the node's memory; if the message names a path, correct objectAlias";
    VolumeMemoryExhausted, "VolumeMemoryExhausted", File, ByItself,
        "The content exceeds the memory limit of all volumes of the node.",
        "give the node plugin more memory, ask for fewer or smaller objects, or spread the pods over more nodes";
    CredentialOlder, "CredentialOlder", File, Never,
        "The vault returned a credential that is older than the mounted one, and the node rejected it.",
        "if the roll-back is intended, annotate the class with `lanyard.dev/accept-older`";
    StatusNotWritten, "StatusNotWritten", File, ByItself,
        "The volume is mounted, and its status could not be written to the Kubernetes API.",
        "check the health of the Kubernetes API and the RBAC of the node plugin's service account";
    SecretNotSynced, "FailedToCreateSecret", File, ByItself,
        "The volume is mounted, and a Kubernetes Secret could not be synchronized with it.",
        "read the message; the synchronization of Secrets needs `syncSecret.enabled` of the chart";
}

impl OutcomeCode {
    /// The stable name.
    pub const fn name(self) -> &'static str {
        self.text().name
    }

    /// The hop that failed.
    pub const fn hop(self) -> Hop {
        self.text().hop
    }

    /// The default hint, for errors without a more specific one.
    pub const fn hint(self) -> &'static str {
        self.text().hint
    }

    /// Whether the failure may go away without a change.
    pub const fn recovery_mode(self) -> RecoveryMode {
        self.text().healing
    }
}

impl From<OutcomeCode> for &'static str {
    fn from(code: OutcomeCode) -> Self {
        code.name()
    }
}

crate::display_text!(OutcomeCode, name());

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
