//! The generator of ids, and the seed of reproducible keys.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::keys::RsaKeySize;

/// A generator of ids, keys and secret bytes: random, or reproducible from a seed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IdGenerator {
    /// Random ids.
    Random,
    /// The n-th id is a name-based UUID of n within this namespace.
    Seeded {
        namespace: Uuid,
        /// The number of generated ids.
        count: u64,
        /// The number of generated RSA keys, by size.
        #[serde(default)]
        rsa_keys: BTreeMap<RsaKeySize, u32>,
    },
}

impl IdGenerator {
    /// A generator that has generated nothing yet.
    pub const fn seeded(namespace: Uuid) -> Self {
        Self::Seeded { namespace, count: 0, rsa_keys: BTreeMap::new() }
    }

    /// A new UUID.
    pub fn next_uuid(&mut self) -> Uuid {
        match self {
            Self::Random => Uuid::new_v4(),
            Self::Seeded { namespace, count, .. } => {
                *count += 1;
                Uuid::new_v5(namespace, &count.to_be_bytes())
            }
        }
    }

    /// A UUID that depends on the seed and a name only, so that it stays the same when other objects are
    /// added; random without a seed.
    pub fn named_uuid(&self, name: &str) -> Uuid {
        match self {
            Self::Random => Uuid::new_v4(),
            Self::Seeded { namespace, .. } => Uuid::new_v5(namespace, name.as_bytes()),
        }
    }

    /// Generates 32 hexadecimal digits, the form of vault object versions.
    pub fn next_hex32(&mut self) -> String {
        self.next_uuid().simple().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeded_ids_repeat_and_random_ids_do_not() {
        let seeded = || IdGenerator::seeded(Uuid::from_u128(1));
        let (mut one, mut two) = (seeded(), seeded());
        let first = one.next_uuid();
        assert_eq!(first, two.next_uuid());
        assert_ne!(first, one.next_uuid());
        let mut random = IdGenerator::Random;
        assert_ne!(random.next_uuid(), random.next_uuid());
        assert_eq!(random.next_hex32().len(), 32);
    }
}
