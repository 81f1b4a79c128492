//! The `CustomResourceDefinition`s of the kinds that the operator reads and writes, as JSON values.
//!
//! `cargo xtask codegen` writes the definitions into the operator's chart. The rules are those of
//! HyperShift's schema (`hypershift.openshift.io/v1beta1`), with its messages
//! ([`validation_messages`]); fields that lanyard does not use are preserved unchecked.
//! `lanyard_desired::validate` implements the same rules in Rust.
//! `conformance/cases/hosted_cluster.yaml` tests both implementations with the same cases.
//!
//! ```
//! let names: Vec<_> = lanyard_api::crd_definitions::crd_manifests()
//!     .iter()
//!     .map(|definition| definition.file_name())
//!     .collect();
//! assert!(names.contains(&"hostedclusters.yaml".to_owned()));
//! ```

use serde_json::{Value, json};

mod authentication;
mod azure;
mod cluster_fields;
mod encryption;
mod encryption_status;
mod hosted_cluster;
mod hosted_cluster_identities;
mod publishing;
mod schema;
#[cfg(test)]
mod tests;
pub mod validation_messages;

pub use cluster_fields::CAPABILITIES;
pub use hosted_cluster::{DEFAULT_ISSUER_URL, PLATFORM_TYPES, default_etcd, default_networking};

use schema::CrdSchema;

/// A custom resource definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrdManifest {
    /// The `apiextensions.k8s.io/v1` object.
    pub value: Value,
}

impl CrdManifest {
    /// The plural name of the kind: the first part of the CRD's name.
    pub fn plural(&self) -> &str {
        self.value["spec"]["names"]["plural"].as_str().unwrap_or_default()
    }

    /// The name of the definition's file in the chart: `<plural>.yaml`.
    pub fn file_name(&self) -> String {
        format!("{}.yaml", self.plural())
    }
}

/// All definitions: `HostedCluster`, `HostedControlPlane` and `HostedClusterIdentities`.
pub fn crd_manifests() -> [CrdManifest; 3] {
    [
        hosted_cluster::hosted_cluster_crd(),
        hosted_cluster::hosted_control_plane_crd(),
        hosted_cluster_identities::hosted_cluster_identities_crd(),
    ]
    .map(|value| CrdManifest { value })
}

struct CrdNames {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    singular: &'static str,
    short_names: &'static [&'static str],
}

/// A column in the output of `kubectl get`.
struct PrinterColumn {
    name: &'static str,
    kind: &'static str,
    path: String,
    /// Whether `kubectl get` shows the column only with `-o wide`.
    is_wide: bool,
}

impl PrinterColumn {
    fn of(name: &'static str, path: &str) -> Self {
        Self { name, kind: "string", path: path.to_owned(), is_wide: false }
    }

    fn condition_status(name: &'static str, condition: &str) -> Self {
        Self::of(name, &format!(r#".status.conditions[?(@.type=="{condition}")].status"#))
    }

    fn condition_message(name: &'static str, condition: &str) -> Self {
        Self::of(name, &format!(r#".status.conditions[?(@.type=="{condition}")].message"#))
    }

    fn age() -> Self {
        Self { kind: "date", ..Self::of("Age", ".metadata.creationTimestamp") }
    }

    fn wide_only(self) -> Self {
        Self { is_wide: true, ..self }
    }

    fn to_value(&self) -> Value {
        let mut column = json!({"name": self.name, "type": self.kind, "jsonPath": self.path});
        if self.is_wide {
            column["priority"] = json!(1);
        }
        column
    }
}

fn crd_json(names: &CrdNames, columns: &[PrinterColumn], schema: CrdSchema) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{}.{}", names.plural, names.group)},
        "spec": {
            "group": names.group,
            "scope": "Namespaced",
            "names": {
                "kind": names.kind,
                "listKind": format!("{}List", names.kind),
                "plural": names.plural,
                "singular": names.singular,
                "shortNames": names.short_names,
            },
            "versions": [{
                "name": names.version,
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns":
                    columns.iter().map(PrinterColumn::to_value).collect::<Vec<_>>(),
                "schema": {"openAPIV3Schema": schema.into_value()},
            }],
        },
    })
}
