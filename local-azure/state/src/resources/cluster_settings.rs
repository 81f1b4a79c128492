//! Kubeconfigs and API servers of managed clusters (AKS), which clients of Azure cannot set.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::keys::RedactedText;
use crate::published_key::RsaPublicJwk;

/// What the control API sets for a managed cluster.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ManagedClusterSettings {
    /// The kubeconfig of `listClusterUserCredential`.
    pub kubeconfig: Option<RedactedText>,
    /// The kubeconfig of `listClusterAdminCredential`; by default that of the user.
    pub admin_kubeconfig: Option<RedactedText>,
    /// The registered API server.
    pub api_server: Option<ClusterApiServer>,
}

/// The API server of a managed cluster, as it was reported last.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterApiServer {
    /// The issuer of the ServiceAccount tokens; `None` until one is reported.
    pub issuer: Option<String>,
    /// The public keys that verify the tokens, by `kid`.
    pub keys: BTreeMap<String, RsaPublicJwk>,
}
