//! Hosted clusters that differ in everything in which those of a fleet do.

use std::collections::BTreeSet;

use libtest_mimic::Failed;
use serde_json::Value;

/// The namespace of the HostedClusters, as in the example.
pub(super) const NAMESPACE: &str = "clusters";

/// Many HostedClusters after one pattern.
#[derive(Debug, Clone)]
pub(super) struct Fleet {
    pattern: String,
    ids: BTreeSet<String>,
}

impl Fleet {
    /// A fleet whose members are like this one, but for names and ids.
    pub(super) fn like(example: &Value) -> Self {
        let mut ids = BTreeSet::new();
        find_ids(example, &mut ids);
        Self { pattern: example.to_string(), ids }
    }

    /// The member of this number: names, vaults, secrets, subscription, tenants and clients are its
    /// own, and of the same lengths for all.
    pub(super) fn member(&self, number: usize) -> Result<Value, Failed> {
        let mut text = self.pattern.replace(PATTERN, &name(number));
        for id in &self.ids {
            let kept = id.get(..id.len() - DIGITS).unwrap_or_default();
            text = text.replace(id, &format!("{kept}{number:0DIGITS$}"));
        }
        Ok(serde_json::from_str(&text)?)
    }
}

/// The name of a member, as long as the one of the example.
pub(super) fn name(number: usize) -> String {
    format!("hc{number:0DIGITS$}")
}

/// The namespace of the control plane of a member.
pub(super) fn room(number: usize) -> String {
    format!("{NAMESPACE}-{}", name(number))
}

fn find_ids(value: &Value, ids: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => {
            let hyphens = [8, 13, 18, 23];
            let is_id = text.len() == 36
                && text.bytes().enumerate().all(|(place, byte)| {
                    if hyphens.contains(&place) { byte == b'-' } else { byte.is_ascii_hexdigit() }
                });
            ids.extend(is_id.then(|| text.clone()));
        }
        Value::Array(items) => items.iter().for_each(|item| find_ids(item, ids)),
        Value::Object(fields) => fields.values().for_each(|field| find_ids(field, ids)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The name of the example, which is in all that it names.
const PATTERN: &str = "harbour";
const DIGITS: usize = 5;
