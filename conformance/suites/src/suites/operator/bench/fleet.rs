//! HostedClusters that differ in the fields in which those of a real fleet differ.

use std::collections::BTreeSet;

use libtest_mimic::Failed;
use serde_json::{Value, json};

/// The namespace of the HostedClusters, as in the example.
pub(super) const NAMESPACE: &str = "clusters";

/// The Secret that every member refers to.
const REFERENCED_SECRET: &str = "fleet-references";

/// The Secret that every member refers to, as a pull secret and as an SSH key.
pub(super) fn referenced_secret() -> Value {
    json!({
        "metadata": {"name": REFERENCED_SECRET},
        "stringData": {".dockerconfigjson": "{\"auths\":{}}", "id_rsa.pub": "ssh-ed25519 AAAA"},
    })
}

/// HostedClusters that are made from one template.
#[derive(Debug, Clone)]
pub(super) struct HostedClusterFleet {
    template: String,
    ids: BTreeSet<String>,
}

impl HostedClusterFleet {
    /// Creates a fleet whose members equal the example except for names, ids and the Secret that all of them
    /// refer to.
    pub(super) fn from_template(example: &Value) -> Self {
        let mut ids = BTreeSet::new();
        collect_ids(example, &mut ids);
        let mut example = example.clone();
        for reference in ["pullSecret", "sshKey"] {
            example["spec"][reference] = json!({"name": REFERENCED_SECRET});
        }
        Self { template: example.to_string(), ids }
    }

    /// The member with this number. It has its own names, vaults, secrets, subscription, tenants and clients,
    /// all with the lengths of the example.
    pub(super) fn hosted_cluster(&self, number: usize) -> Result<Value, Failed> {
        let mut text = self.template.replace(TEMPLATE_NAME, &cluster_name(number));
        for id in &self.ids {
            let retained = id.get(..id.len() - NAME_DIGITS).unwrap_or_default();
            text = text.replace(id, &format!("{retained}{number:0NAME_DIGITS$}"));
        }
        Ok(serde_json::from_str(&text)?)
    }
}

/// The name of a member, as long as that of the example.
pub(super) fn cluster_name(number: usize) -> String {
    format!("hc{number:0NAME_DIGITS$}")
}

/// The control plane namespace of a member.
pub(super) fn control_plane_namespace(number: usize) -> String {
    format!("{NAMESPACE}-{}", cluster_name(number))
}

fn collect_ids(value: &Value, ids: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => {
            let hyphens = [8, 13, 18, 23];
            let is_id = text.len() == 36
                && text.bytes().enumerate().all(|(place, byte)| {
                    if hyphens.contains(&place) { byte == b'-' } else { byte.is_ascii_hexdigit() }
                });
            ids.extend(is_id.then(|| text.clone()));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_ids(item, ids)),
        Value::Object(fields) => fields.values().for_each(|field| collect_ids(field, ids)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The name of the example, which is part of the names in it.
const TEMPLATE_NAME: &str = "harbour";
const NAME_DIGITS: usize = 5;
