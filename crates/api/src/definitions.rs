//! The custom resource definitions of the kinds that the operator reads and writes, as values.
//!
//! `cargo xtask codegen` writes them into the operator's chart. Rules are those of the reference's
//! schema (`hypershift.openshift.io/v1beta1`), with its messages ([`message`]); fields of others are
//! kept as they come. The same rules stand in Rust in `lanyard_desired::validate`, and one file of
//! cases, `conformance/cases/hosted_cluster.yaml`, holds both to the same verdicts.
//!
//! ```
//! let names: Vec<_> = lanyard_api::definitions::all()
//!     .iter()
//!     .map(|definition| definition.file_name())
//!     .collect();
//! assert!(names.contains(&"hostedclusters.yaml".to_owned()));
//! ```

use serde_json::{Value, json};

mod authentication;
mod azure;
mod encryption;
mod hosted_cluster;
mod hosted_cluster_identities;
pub mod message;
mod schema;
#[cfg(test)]
mod tests;

pub use hosted_cluster::DEFAULT_ISSUER_URL;

use schema::Schema;

/// A custom resource definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// The object, of `apiextensions.k8s.io/v1`.
    pub value: Value,
}

impl Definition {
    /// The plural of the kind, which begins the name of the object.
    pub fn plural(&self) -> &str {
        self.value["spec"]["names"]["plural"].as_str().unwrap_or_default()
    }

    /// The name of its file in a chart: `<plural>.yaml`.
    pub fn file_name(&self) -> String {
        format!("{}.yaml", self.plural())
    }
}

/// Every definition: `HostedCluster`, `HostedControlPlane` and `HostedClusterIdentities`.
pub fn all() -> [Definition; 3] {
    [
        hosted_cluster::hosted_cluster(),
        hosted_cluster::hosted_control_plane(),
        hosted_cluster_identities::hosted_cluster_identities(),
    ]
    .map(|value| Definition { value })
}

/// What a kind is called.
struct Names {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    singular: &'static str,
    short: &'static [&'static str],
}

/// A column that `kubectl get` prints.
struct Column {
    name: &'static str,
    kind: &'static str,
    path: String,
    /// Only with `-o wide`.
    wide: bool,
}

impl Column {
    fn of(name: &'static str, path: &str) -> Self {
        Self { name, kind: "string", path: path.to_owned(), wide: false }
    }

    fn condition(name: &'static str, condition: &str) -> Self {
        Self::of(name, &format!(r#".status.conditions[?(@.type=="{condition}")].status"#))
    }

    fn message(name: &'static str, condition: &str) -> Self {
        Self::of(name, &format!(r#".status.conditions[?(@.type=="{condition}")].message"#))
    }

    fn age() -> Self {
        Self { kind: "date", ..Self::of("Age", ".metadata.creationTimestamp") }
    }

    fn wide(self) -> Self {
        Self { wide: true, ..self }
    }

    fn to_value(&self) -> Value {
        let mut column = json!({"name": self.name, "type": self.kind, "jsonPath": self.path});
        if self.wide {
            column["priority"] = json!(1);
        }
        column
    }
}

fn definition(names: &Names, columns: &[Column], schema: Schema) -> Value {
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
                "shortNames": names.short,
            },
            "versions": [{
                "name": names.version,
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns":
                    columns.iter().map(Column::to_value).collect::<Vec<_>>(),
                "schema": {"openAPIV3Schema": schema.into_value()},
            }],
        },
    })
}
