//! Which clusters name one secret of a vault. Pure.

use std::collections::{BTreeSet, HashMap};

use lanyard_desired::ValidatedHostedCluster;

use crate::cluster_key::ClusterKey;

/// Who names which secret, by vault and secret: a vault ignores the case of names.
#[derive(Debug, Default)]
pub(crate) struct SharedCredentials {
    clusters_by_secret: HashMap<(String, String), BTreeSet<ClusterKey>>,
    secrets_by_cluster: HashMap<ClusterKey, BTreeSet<(String, String)>>,
}

impl SharedCredentials {
    /// Notes what a cluster names. Returns the others that name some of it, too.
    pub(crate) fn update_cluster(
        &mut self,
        key: &ClusterKey,
        cluster: &ValidatedHostedCluster,
    ) -> BTreeSet<ClusterKey> {
        let vault = cluster.vault.name.as_str().to_ascii_lowercase();
        let name = |secret: &str| (vault.clone(), secret.to_ascii_lowercase());
        let named: BTreeSet<_> = cluster
            .running_components()
            .map(|(_, identity)| name(identity.secret_name.as_str()))
            .collect();
        if self.secrets_by_cluster.get(key) != Some(&named) {
            self.remove_cluster(key);
            for place in &named {
                self.clusters_by_secret.entry(place.clone()).or_default().insert(key.clone());
            }
            self.secrets_by_cluster.insert(key.clone(), named);
        }
        self.sharing_clusters(key)
    }

    /// The others that name some of what a cluster names.
    pub(crate) fn sharing_clusters(&self, key: &ClusterKey) -> BTreeSet<ClusterKey> {
        let named = self.secrets_by_cluster.get(key).into_iter().flatten();
        let owners = named.filter_map(|place| self.clusters_by_secret.get(place)).flatten();
        owners.filter(|owner| *owner != key).cloned().collect()
    }

    /// A cluster names nothing any more.
    pub(crate) fn remove_cluster(&mut self, key: &ClusterKey) {
        for place in self.secrets_by_cluster.remove(key).unwrap_or_default() {
            if let Some(owners) = self.clusters_by_secret.get_mut(&place) {
                owners.remove(key);
                if owners.is_empty() {
                    self.clusters_by_secret.remove(&place);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use lanyard_desired::parse_hosted_cluster;

    use super::*;

    const EXAMPLE: &str = include_str!("../../../examples/hostedcluster.yaml");

    fn cluster(text: &str) -> ValidatedHostedCluster {
        parse_hosted_cluster(text).unwrap().hosted_cluster
    }

    #[test]
    fn clusters_sharing_a_secret_are_tracked() {
        let mut shared = SharedCredentials::default();
        let keys = ["a", "b", "c"].map(|name| ClusterKey::of("clusters", name));
        let same = cluster(EXAMPLE);
        let other = cluster(&EXAMPLE.replace("harbour-", "other-"));
        assert!(shared.update_cluster(&keys[0], &same).is_empty());
        assert!(shared.update_cluster(&keys[2], &other).is_empty());
        assert_eq!(shared.update_cluster(&keys[1], &same), BTreeSet::from([keys[0].clone()]));
        // Another wish names other secrets.
        assert!(shared.update_cluster(&keys[1], &other).contains(&keys[2]));
        assert!(shared.update_cluster(&keys[0], &same).is_empty());
        shared.remove_cluster(&keys[1]);
        assert!(shared.update_cluster(&keys[2], &other).is_empty());
    }
}
