//! The identity status of a cluster that the operator wrote last.

use lanyard_api::HostedClusterIdentities;
use lanyard_api::hosted_cluster_identities::HostedClusterIdentitiesStatus;

use super::objects::is_older_version;

/// The fields of a HostedClusterIdentities that the operator uses.
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
}

/// The compact form of a report in the cache.
#[derive(Debug, Clone)]
pub(super) struct CachedReport {
    uid: Box<str>,
    version: Box<str>,
    owner: Option<Box<str>>,
    /// The status as JSON, which needs less memory than the parsed status.
    status: Option<Box<[u8]>>,
}

impl CachedReport {
    pub(super) fn of(report: IdentitiesReport) -> Self {
        let status = report.status.and_then(|status| serde_json::to_vec(&status).ok());
        Self {
            uid: report.uid.into(),
            version: report.version.into(),
            owner: report.owner.map(Into::into),
            status: status.map(Into::into),
        }
    }

    pub(super) fn parse(&self) -> IdentitiesReport {
        let status = self.status.as_ref().and_then(|status| serde_json::from_slice(status).ok());
        IdentitiesReport {
            uid: self.uid.to_string(),
            version: self.version.to_string(),
            owner: self.owner.as_ref().map(ToString::to_string),
            status,
        }
    }

    /// `metadata.resourceVersion`.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// Whether both are the same object with the same status.
    pub(super) fn has_same_status(&self, other: &Self) -> bool {
        self.uid == other.uid && self.status == other.status
    }

    /// Whether a write response was newer than this object. The watch delivers the intermediate versions
    /// later; processing them would report the changes again.
    pub(super) fn is_older_than(&self, known: &Self) -> bool {
        self.uid == known.uid && is_older_version(&self.version, &known.version)
    }
}
