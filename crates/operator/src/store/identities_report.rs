//! The identity status of a cluster that the operator wrote last.

use lanyard_api::HostedClusterIdentities;
use lanyard_api::hosted_cluster_identities::HostedClusterIdentitiesStatus;

use super::objects::is_older_version;

/// A cached HostedClusterIdentities: the identity status of a cluster that the operator wrote last.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct IdentitiesReport {
    pub(crate) uid: String,
    pub(crate) version: String,
    /// The uid of the HostedCluster that the report is about.
    pub(crate) owner: Option<String>,
    pub(crate) status: Option<HostedClusterIdentitiesStatus>,
}

impl IdentitiesReport {
    pub(crate) fn of(identities: HostedClusterIdentities) -> Self {
        let metadata = identities.metadata;
        let owner = metadata.owner_references.unwrap_or_default().into_iter().next();
        Self {
            uid: metadata.uid.unwrap_or_default(),
            version: metadata.resource_version.unwrap_or_default(),
            owner: owner.map(|owner| owner.uid),
            status: identities.status,
        }
    }

    /// Whether a write response was newer than this object. The watch delivers the intermediate versions
    /// later; processing them would report the changes again.
    pub(super) fn is_older_than(&self, known: &Self) -> bool {
        self.uid == known.uid && is_older_version(&self.version, &known.version)
    }
}
