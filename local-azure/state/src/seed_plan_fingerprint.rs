//! The fingerprint of the seed plan that a state was created from.

use aws_lc_rs::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

/// The fingerprint of a seed plan: the SHA-256 digest of its JSON in hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeedPlanFingerprint(String);

impl SeedPlanFingerprint {
    /// The fingerprint of a plan's JSON.
    pub fn of_json(json: &[u8]) -> Self {
        Self(hex::encode(digest(&SHA256, json)))
    }
}
