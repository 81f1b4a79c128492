//! Tracks vault secrets that several clusters name. Pure.

use std::collections::{BTreeSet, HashMap};

use lanyard_desired::ValidatedHostedCluster;

use crate::cluster_key::ClusterKey;

/// The clusters by named secret. Keys are lower-case, because Key Vault ignores the case of names.
#[derive(Debug, Default)]
pub(crate) struct SharedCredentials {
    clusters_by_secret: HashMap<(String, String), BTreeSet<ClusterKey>>,
    secrets_by_cluster: HashMap<ClusterKey, BTreeSet<(String, String)>>,
}

impl SharedCredentials {
    /// Records the secrets that a cluster names. Returns the other clusters that share any of them.
    pub(crate) fn update_cluster(
        &mut self,
        key: &ClusterKey,
        cluster: &ValidatedHostedCluster,
    ) -> BTreeSet<ClusterKey> {
        let vault = cluster.vault.name.as_str().to_ascii_lowercase();
        let name = |secret: &str| (vault.clone(), secret.to_ascii_lowercase());
        let secrets: BTreeSet<_> = cluster
            .running_components()
            .map(|(_, identity)| name(identity.secret_name.as_str()))
            .collect();
        if self.secrets_by_cluster.get(key) != Some(&secrets) {
            self.remove_cluster(key);
            for place in &secrets {
                self.clusters_by_secret.entry(place.clone()).or_default().insert(key.clone());
            }
            self.secrets_by_cluster.insert(key.clone(), secrets);
        }
        self.sharing_clusters(key)
    }

    /// The other clusters that share any secret with this cluster.
    pub(crate) fn sharing_clusters(&self, key: &ClusterKey) -> BTreeSet<ClusterKey> {
        let secrets = self.secrets_by_cluster.get(key).into_iter().flatten();
        let clusters = secrets.filter_map(|place| self.clusters_by_secret.get(place)).flatten();
        clusters.filter(|cluster| *cluster != key).cloned().collect()
    }

    /// Forgets the secrets of a cluster.
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
        // A changed spec names other secrets.
        assert!(shared.update_cluster(&keys[1], &other).contains(&keys[2]));
        assert!(shared.update_cluster(&keys[0], &same).is_empty());
        shared.remove_cluster(&keys[1]);
        assert!(shared.update_cluster(&keys[2], &other).is_empty());
    }
}
