//! The pod of a volume, and the credentials that the kubelet passes for it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

use crate::secret_bytes::SharedSecretBytes;

/// A pod, as the kubelet identifies it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumePod {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `spec.serviceAccountName`; empty if the caller did not pass it.
    pub service_account: String,
}

impl fmt::Display for VolumePod {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

/// The credentials of a pod. Never printed.
#[derive(Debug, Clone, Default)]
pub struct PodCredentials {
    /// `csi.storage.k8s.io/serviceAccount.tokens`, by audience.
    pub tokens: ServiceAccountTokens,
    /// The content of the `nodePublishSecretRef` Secret.
    pub secrets: PublishSecrets,
}

/// The service account tokens of a pod, by audience.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ServiceAccountTokens(pub BTreeMap<String, ServiceAccountToken>);

#[derive(Clone, PartialEq, Eq)]
pub struct ServiceAccountToken {
    /// The compact JWT.
    pub token: Arc<SharedSecretBytes>,
    /// When the token expires.
    pub expires: Timestamp,
}

/// The content of the `nodePublishSecretRef` Secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PublishSecrets(pub BTreeMap<String, Arc<SharedSecretBytes>>);

impl fmt::Debug for ServiceAccountTokens {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_map().entries(&self.0).finish()
    }
}

lanyard_vocabulary::debug_fields!(ServiceAccountToken { expires });

impl fmt::Debug for PublishSecrets {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.0.keys()).finish()
    }
}
