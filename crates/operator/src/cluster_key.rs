//! The key of a hosted cluster.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest::{SHA256, digest};

/// The namespace and the name of a HostedCluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterKey {
    namespace: String,
    name: String,
}

/// The text is not a valid [`ClusterKey`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not `<namespace>/<name>`")]
pub struct ParseClusterKeyError {
    text: String,
}

impl ClusterKey {
    /// The key of an object with this namespace and this name.
    pub(crate) fn of(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// `metadata.namespace`.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// `metadata.name`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The shard of this cluster out of `shards`: the first eight bytes (big-endian) of the SHA-256 of the
    /// displayed key, modulo `shards`. Replicas of two versions run together during a rollout, so this
    /// formula never changes.
    pub(crate) fn shard(&self, shards: u32) -> u32 {
        let digest = digest(&SHA256, self.to_string().as_bytes());
        let first = digest.as_ref().iter().take(size_of::<u64>());
        let number = first.fold(0, |number, byte| number << u8::BITS | u64::from(*byte));
        u32::try_from(number % u64::from(shards.max(1))).unwrap_or_default()
    }
}

impl FromStr for ClusterKey {
    type Err = ParseClusterKeyError;

    /// Parses the annotation that refers from an object to its cluster.
    fn from_str(text: &str) -> Result<Self, ParseClusterKeyError> {
        match text.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => {
                Ok(Self::of(namespace, name))
            }
            _ => Err(ParseClusterKeyError { text: text.to_owned() }),
        }
    }
}

impl fmt::Display for ClusterKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_key_round_trips_through_text() {
        let key: ClusterKey = "clusters/harbour".parse().unwrap();
        assert_eq!((key.namespace(), key.name()), ("clusters", "harbour"));
        assert_eq!(key.to_string(), "clusters/harbour");
        for text in ["", "clusters", "/harbour", "clusters/"] {
            assert!(text.parse::<ClusterKey>().is_err(), "{text}");
        }
    }

    #[test]
    fn clusters_spread_over_all_shards() {
        let mut counts = [0; 4];
        for number in 0..1_000 {
            let shard = ClusterKey::of("clusters", &format!("c{number}")).shard(4);
            counts[usize::try_from(shard).unwrap()] += 1;
        }
        assert!(counts.iter().all(|count| *count > 150), "{counts:?}");
        assert_eq!(ClusterKey::of("a", "b").shard(1), 0);
    }

    #[test]
    fn shard_assignment_is_stable_across_versions() {
        // Computed with `printf %s clusters/harbour | sha256sum`.
        let shards = |name| [2, 3, 7, 1_000].map(|of| ClusterKey::of("clusters", name).shard(of));
        assert_eq!(shards("harbour"), [0, 2, 4, 952]);
        assert_eq!(shards("lagoon"), [1, 0, 6, 449]);
    }
}
