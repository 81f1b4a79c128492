//! The resource versions of a fleet's objects.

use std::collections::{BTreeMap, BTreeSet};

use kube::api::{Api, DynamicObject, ListParams};
use kube::{Client, ResourceExt};
use lanyard_desired::OwnedKind;
use libtest_mimic::Failed;

use super::fleet::NAMESPACE;
use crate::api_server::DynamicKind;

/// The resource version of every object, by kind, namespace and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ObjectVersions(BTreeMap<String, String>);

impl ObjectVersions {
    /// Lists all objects of the fleet.
    pub(super) async fn fetch(client: &Client) -> Result<Self, Failed> {
        let mut versions = BTreeMap::new();
        let owned = OwnedKind::ALL.map(|kind| {
            let facts = kind.info();
            let (group, version) =
                facts.api_version.split_once('/').unwrap_or(("", facts.api_version));
            DynamicKind::from_names(group, version, facts.kind, facts.plural)
        });
        let others = [DynamicKind::hosted_cluster(), DynamicKind::hosted_cluster_identities()];
        let owned = owned.iter().map(|kind| (kind, "clusters-hc"));
        // Other objects of this namespace are those to which the HostedClusters refer.
        let others = others.iter().map(|kind| (kind, NAMESPACE));
        for (kind, place_prefix) in owned.chain(others) {
            let api = Api::<DynamicObject>::all_with(client.clone(), kind.api_resource());
            let mut page = ListParams::default().limit(PAGE_SIZE);
            loop {
                let listed = api.list_metadata(&page).await?;
                for object in &listed.items {
                    let namespace = object.namespace();
                    let place = namespace.unwrap_or_else(|| object.name_any());
                    // The write loop uses other namespaces.
                    if place.starts_with(place_prefix) {
                        let name =
                            format!("{} {place}/{}", kind.api_resource().kind, object.name_any());
                        versions.insert(name, object.resource_version().unwrap_or_default());
                    }
                }
                let Some(next) = listed.metadata.continue_.filter(|it| !it.is_empty()) else {
                    break;
                };
                page = page.continue_token(&next);
            }
        }
        Ok(Self(versions))
    }

    /// The number of objects.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The objects that were created, deleted or changed between `self` and `later`.
    pub(super) fn changed_objects(&self, later: &Self) -> BTreeSet<String> {
        let gone = self.0.keys().filter(|name| !later.0.contains_key(*name));
        let other = later.0.iter().filter(|(name, version)| self.0.get(*name) != Some(version));
        gone.chain(other.map(|(name, _)| name)).cloned().collect()
    }
}

const PAGE_SIZE: u32 = 500;
