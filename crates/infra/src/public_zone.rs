//! The public DNS zone of a base domain, below which clusters are created.

use std::borrow::Cow;

use lanyard_azure::{ArmBody as _, ArmClient, AzureCallError, DnsZone, DnsZoneBody};
use lanyard_clock::ErrorHint;
use lanyard_vocabulary::{ArmResourceId, SubscriptionId};

/// The public DNS zones of a subscription could not be read, or not exactly one has the name of the base domain.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublicZoneError {
    /// The zones cannot be read.
    #[error("reading the public DNS zones failed")]
    Read(#[source] Box<AzureCallError>),
    /// A zone in the reply is not readable.
    #[error("Azure returned an unreadable DNS zone")]
    Malformed(#[source] serde_json::Error),
    /// No zone has the name.
    #[error("the subscription has no public DNS zone `{base_domain}`")]
    Missing {
        /// The base domain.
        base_domain: String,
        /// The names of the subscription's zones.
        zones: Vec<String>,
    },
    /// Several zones have the name.
    #[error("several public DNS zones are named `{base_domain}`: {}", .zones.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Ambiguous {
        /// The base domain.
        base_domain: String,
        /// The zones.
        zones: Vec<ArmResourceId>,
    },
}

impl ErrorHint for PublicZoneError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Owned(match self {
            Self::Read(error) => return error.hint(),
            Self::Malformed(_) => "run the command with `--log lanyard_azure=debug`".to_owned(),
            Self::Missing { zones, .. } if zones.is_empty() => {
                "create the zone with `lanyard create dns azure`, or name a zone of another subscription with --public-zone-id".to_owned()
            }
            Self::Missing { zones, .. } => {
                format!("choose one of its zones with --base-domain: {}", zones.join(", "))
            }
            Self::Ambiguous { .. } => "choose one with --public-zone-id".to_owned(),
        }))
    }
}

/// Finds the public DNS zone of a base domain. Zone names are compared without case, as DNS does.
///
/// # Errors
///
/// [`PublicZoneError`] if the zones cannot be read, or not exactly one has the name.
pub(crate) async fn find_public_zone(
    arm: &ArmClient,
    subscription: &SubscriptionId,
    base_domain: &str,
) -> Result<ArmResourceId, PublicZoneError> {
    let scope = ArmResourceId::subscription_scope(subscription);
    let path = format!("{scope}/providers/{}", DnsZoneBody::RESOURCE_TYPE);
    let listed = arm.list(&path, DnsZoneBody::API_VERSION, &[]).await;
    let listed = listed.map_err(|source| PublicZoneError::Read(Box::new(source)))?;
    let zones: Vec<DnsZone> = listed
        .into_iter()
        .map(serde_json::from_value)
        .collect::<Result<_, _>>()
        .map_err(PublicZoneError::Malformed)?;
    select_public_zone(zones, base_domain)
}

fn select_public_zone(
    zones: Vec<DnsZone>,
    base_domain: &str,
) -> Result<ArmResourceId, PublicZoneError> {
    let has_name = |zone: &DnsZone| zone.name.eq_ignore_ascii_case(base_domain);
    let (mut found, others): (Vec<_>, Vec<_>) = zones.into_iter().partition(has_name);
    let base_domain = base_domain.to_owned();
    match found.len() {
        1 => Ok(found.remove(0).id),
        0 => {
            let mut zones: Vec<_> = others.into_iter().map(|zone| zone.name).collect();
            zones.sort();
            Err(PublicZoneError::Missing { base_domain, zones })
        }
        _ => {
            let zones = found.into_iter().map(|zone| zone.id).collect();
            Err(PublicZoneError::Ambiguous { base_domain, zones })
        }
    }
}

#[cfg(test)]
mod tests {
    use lanyard_azure::{DnsZoneProperties, ResourceTags};

    use super::*;

    fn zone(group: &str, name: &str) -> DnsZone {
        let id = format!(
            "/subscriptions/s/resourceGroups/{group}/providers/Microsoft.Network/dnsZones/{name}"
        );
        DnsZone {
            id: id.parse().unwrap(),
            name: name.to_owned(),
            tags: ResourceTags::new(),
            properties: DnsZoneProperties::default(),
        }
    }

    #[test]
    fn zone_is_found_without_case_and_ambiguity_is_an_error() {
        let zones = || vec![zone("a", "Example.com"), zone("a", "other.com")];
        let found = select_public_zone(zones(), "example.COM").unwrap();
        assert_eq!(found.name(), "Example.com");
        let error = select_public_zone(zones(), "third.com").unwrap_err();
        assert_eq!(
            error.hint().as_deref(),
            Some("choose one of its zones with --base-domain: Example.com, other.com")
        );
        let mut twice = zones();
        twice.push(zone("b", "example.com"));
        let error = select_public_zone(twice, "example.com").unwrap_err();
        assert!(error.to_string().contains("/resourceGroups/b/"), "{error}");
    }
}
