//! Which clusters name one secret of a vault. Pure.

use std::collections::{BTreeSet, HashMap};

use lanyard_desired::ValidatedHostedCluster;

use crate::key::ClusterKey;

/// Who names which secret, by vault and secret: a vault ignores the case of names.
#[derive(Debug, Default)]
pub(crate) struct SharedCredentials {
    owners: HashMap<(String, String), BTreeSet<ClusterKey>>,
    named: HashMap<ClusterKey, BTreeSet<(String, String)>>,
}

impl SharedCredentials {
    /// Notes what a cluster names. Returns the others that name some of it, too.
    pub(crate) fn note(
        &mut self,
        key: &ClusterKey,
        cluster: &ValidatedHostedCluster,
    ) -> BTreeSet<ClusterKey> {
        let vault = cluster.vault.name.as_str().to_ascii_lowercase();
        let name = |secret: &str| (vault.clone(), secret.to_ascii_lowercase());
        let named: BTreeSet<_> =
            cluster.components().map(|(_, identity)| name(identity.secret_name.as_str())).collect();
        if self.named.get(key) != Some(&named) {
            self.forget(key);
            for place in &named {
                self.owners.entry(place.clone()).or_default().insert(key.clone());
            }
            self.named.insert(key.clone(), named);
        }
        self.fellows(key)
    }

    /// The others that name some of what a cluster names.
    pub(crate) fn fellows(&self, key: &ClusterKey) -> BTreeSet<ClusterKey> {
        let named = self.named.get(key).into_iter().flatten();
        let owners = named.filter_map(|place| self.owners.get(place)).flatten();
        owners.filter(|owner| *owner != key).cloned().collect()
    }

    /// A cluster names nothing any more.
    pub(crate) fn forget(&mut self, key: &ClusterKey) {
        for place in self.named.remove(key).unwrap_or_default() {
            if let Some(owners) = self.owners.get_mut(&place) {
                owners.remove(key);
                if owners.is_empty() {
                    self.owners.remove(&place);
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
    fn who_names_the_same_secret_is_known_until_one_of_them_goes() {
        let mut shared = SharedCredentials::default();
        let keys = ["a", "b", "c"].map(|name| ClusterKey::of("clusters", name));
        let same = cluster(EXAMPLE);
        let other = cluster(&EXAMPLE.replace("harbour-", "other-"));
        assert!(shared.note(&keys[0], &same).is_empty());
        assert!(shared.note(&keys[2], &other).is_empty());
        assert_eq!(shared.note(&keys[1], &same), BTreeSet::from([keys[0].clone()]));
        // Another wish names other secrets.
        assert!(shared.note(&keys[1], &other).contains(&keys[2]));
        assert!(shared.note(&keys[0], &same).is_empty());
        shared.forget(&keys[1]);
        assert!(shared.note(&keys[2], &other).is_empty());
    }
}
