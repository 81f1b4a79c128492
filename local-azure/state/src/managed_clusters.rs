//! Managed clusters (AKS) beyond their resource: kubeconfigs, API servers, and the issuers of their tokens.
//!
//! The documents of an issuer are published while the directory knows the issuer. A cluster without an API server
//! has an issuer whose key pair is part of the state. A registered API server signs with its own keys: its issuer is
//! published once the API server has reported that it uses the issuer of the cluster's profile.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde_json::Value;

use crate::authorization::AccessScope;
use crate::azure_state::AzureState;
use crate::directory::TrustedIssuer;
use crate::keys::{RsaKey, RsaKeyError};
use crate::resources::cluster_settings::{ClusterApiServer, ManagedClusterSettings};
use crate::resources::resource_store::ArmResource;

/// The type of managed clusters.
pub const MANAGED_CLUSTER_TYPE: &str = "Microsoft.ContainerService/managedClusters";

/// The issuer URL in the profile of a managed cluster; `None` if its issuer is not enabled.
pub fn issuer_in_profile(cluster: &ArmResource) -> Option<&str> {
    cluster.property("oidcIssuerProfile")?.get("issuerURL").and_then(Value::as_str)
}

impl AzureState {
    /// The settings of a managed cluster, if the control API has set some.
    pub fn cluster_settings(&self, cluster: &AccessScope) -> Option<&ManagedClusterSettings> {
        self.resources.managed_clusters.get(&**cluster.index_key())
    }

    fn cluster_api_server(&self, cluster: &AccessScope) -> Option<&ClusterApiServer> {
        self.cluster_settings(cluster)?.api_server.as_ref()
    }

    /// Whether the registered API server of a cluster has to restart, because it uses another issuer.
    pub fn is_restart_pending(&self, cluster: &AccessScope, issuer: &str) -> bool {
        let server = self.cluster_api_server(cluster);
        server.is_some_and(|server| server.issuer.as_deref() != Some(issuer))
    }

    /// Whether the issuer of a cluster needs a key pair: it has none, and the cluster has no API server.
    pub fn needs_issuer_key(&self, cluster: &AccessScope, issuer: &str) -> bool {
        self.cluster_api_server(cluster).is_none() && !self.directory.issuers.contains_key(issuer)
    }

    /// Publishes the issuer of a cluster without an API server, with a new key pair.
    ///
    /// # Errors
    ///
    /// Returns an error if the key pair is malformed.
    pub fn publish_emulated_issuer(
        &mut self,
        issuer: &str,
        key: RsaKey,
    ) -> Result<(), RsaKeyError> {
        let kid = URL_SAFE_NO_PAD.encode(digest(&SHA256, &key.public_der()?));
        let trusted = TrustedIssuer { keys: [(kid, key)].into(), ..TrustedIssuer::default() };
        self.directory.issuers.insert(issuer.to_owned(), trusted);
        Ok(())
    }

    /// Changes the settings of a cluster. Publishes the issuer in its profile if a registered API server uses the
    /// issuer, and withdraws it otherwise.
    pub fn change_cluster_settings(
        &mut self,
        cluster: &AccessScope,
        change: impl FnOnce(&mut ManagedClusterSettings),
    ) {
        let mut settings = self.cluster_settings(cluster).cloned().unwrap_or_default();
        change(&mut settings);
        let issuer = self.resources.resource(cluster).and_then(issuer_in_profile);
        if let (Some(issuer), Some(server)) = (issuer.map(str::to_owned), &settings.api_server) {
            if server.issuer.as_ref() == Some(&issuer) {
                let published = server.keys.clone();
                let trusted = TrustedIssuer { published, ..TrustedIssuer::default() };
                self.directory.issuers.insert(issuer, trusted);
            } else {
                self.directory.issuers.remove(&issuer);
            }
        }
        self.resources.managed_clusters.insert(cluster.index_key().to_string(), settings);
    }

    /// Removes the issuer and the settings of a deleted cluster, and ends its held operations.
    pub fn remove_cluster_state(&mut self, cluster: &ArmResource, now: Timestamp) {
        if let Some(issuer) = issuer_in_profile(cluster)
            && self.directory.issuers.contains_key(issuer)
        {
            self.directory.issuers.remove(issuer);
        }
        self.resources.managed_clusters.remove(&**cluster.id.index_key());
        self.resources.end_held_operations(&cluster.id, now);
    }
}
