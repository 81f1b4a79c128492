//! Why the desired resources of a cluster cannot be determined.

use std::borrow::Cow;

use lanyard_changes::{ResourceGraphError, StackError};
use lanyard_clock::ErrorHint;
use lanyard_vocabulary::{ArmResourceId, ParseArmResourceIdError};

use crate::identity_source::IdentitySourceError;
use crate::principal_lookup::PrincipalLookupError;
use crate::public_zone::PublicZoneError;
use crate::role_graph::RoleGraphError;

/// The desired resources of a cluster cannot be determined.
#[derive(Debug, thiserror::Error)]
pub enum ClusterTargetError {
    /// Ids of existing networks cannot be used.
    #[error("{message}")]
    NetworkIds {
        /// The problems.
        message: String,
        /// What to do next.
        hint: String,
    },
    /// The identity files cannot be used.
    #[error(transparent)]
    Identities(#[from] IdentitySourceError),
    /// The cluster has a private endpoint, and the identities do not contain the operator that creates it.
    #[error(
        "`infra.workloadIdentitiesFile` has no `controlPlaneOperator`, which creates the private endpoint"
    )]
    NoControlPlaneOperator,
    /// The public zone of the base domain is not found.
    #[error(transparent)]
    PublicZone(#[from] PublicZoneError),
    /// The principals of the identities are not found.
    #[error(transparent)]
    Principals(#[from] PrincipalLookupError),
    /// The public zone is in another group than the configuration says.
    #[error(
        "`infra.dnsZoneResourceGroupName`: the zone is in the group `{group}`, not in `{named}`: {zone}"
    )]
    ZoneGroup {
        /// The group of the zone.
        group: String,
        /// The group in the configuration.
        named: String,
        /// The zone.
        zone: ArmResourceId,
    },
    /// The name of the zone's group is invalid.
    #[error("`infra.dnsZoneResourceGroupName`")]
    ZoneGroupName(#[from] ParseArmResourceIdError),
    /// Roles cannot be assigned.
    #[error(transparent)]
    Roles(#[from] RoleGraphError),
    /// The resources cannot be ordered.
    #[error("the resources cannot be ordered")]
    Graph(#[from] ResourceGraphError),
    /// The journal with the names of the resources cannot be read.
    #[error(transparent)]
    Journal(#[from] StackError),
}

impl ErrorHint for ClusterTargetError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::NetworkIds { hint, .. } => Some(hint.clone().into()),
            Self::Identities(error) => error.hint(),
            Self::NoControlPlaneOperator => {
                Some("create the identities with `lanyard create iam azure`".into())
            }
            Self::PublicZone(error) => error.hint(),
            Self::Principals(error) => error.hint(),
            Self::ZoneGroup { .. } => {
                Some("name the group of the zone, or the zone with --public-zone-id".into())
            }
            Self::Roles(error) => error.hint(),
            Self::Journal(error) => error.hint(),
            Self::ZoneGroupName(_) | Self::Graph(_) => None,
        }
    }

    fn is_invalid_input(&self) -> bool {
        !matches!(self, Self::PublicZone(_) | Self::Principals(_) | Self::Journal(_))
    }
}
