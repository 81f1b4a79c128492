//! Applies the objects of a new cluster with server-side apply.

use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use lanyard_infra::manifests::{ClusterManifests, SecretManifest};
use serde::Serialize;
use serde_json::Value;

use crate::commands::cluster_objects::{ClusterObjects, api_error};
use crate::exit::CommandError;
use crate::output::{ColumnKind, TextTable};

/// The name under which the API server records the fields that the command wrote.
const FIELD_MANAGER: &str = "lanyard-create-cluster";

/// An applied object.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AppliedObject {
    kind: &'static str,
    name: String,
    result: &'static str,
}

/// The objects as a table.
pub(super) fn applied_text(objects: &[AppliedObject], line_width: Option<usize>) -> String {
    let mut table =
        TextTable::new(["KIND", "NAME", "RESULT"].map(|header| (ColumnKind::Name, header)));
    for object in objects {
        table.add_row([object.kind, object.name.as_str(), object.result]);
    }
    table.render(line_width)
}

/// Objects that the API server accepted in a dry run.
pub(super) struct AcceptedObjects<'a> {
    objects: &'a ClusterObjects,
    manifests: &'a ClusterManifests,
    namespace: AppliedObject,
}

impl<'a> AcceptedObjects<'a> {
    /// Creates the namespace, and checks all other objects with a dry run, which needs the namespace.
    pub(super) async fn check(
        objects: &'a ClusterObjects,
        manifests: &'a ClusterManifests,
    ) -> Result<Self, CommandError> {
        let writer = ObjectWriter { objects, dry_run: false };
        let namespace = writer.apply_namespace(&manifests.namespace).await?;
        ObjectWriter { objects, dry_run: true }.apply_objects(manifests).await?;
        Ok(Self { objects, manifests, namespace })
    }

    /// Applies the objects in order.
    pub(super) async fn apply(self) -> Result<Vec<AppliedObject>, CommandError> {
        let writer = ObjectWriter { objects: self.objects, dry_run: false };
        let applied = writer.apply_objects(self.manifests).await?;
        Ok(std::iter::once(self.namespace).chain(applied).collect())
    }
}

struct ObjectWriter<'a> {
    objects: &'a ClusterObjects,
    dry_run: bool,
}

impl ObjectWriter<'_> {
    /// The namespace may belong to others, so an existing one is not changed.
    async fn apply_namespace(&self, namespace: &Value) -> Result<AppliedObject, CommandError> {
        let api = self.objects.namespaces();
        let name = name_of(namespace);
        match self.fetch(&api, "Namespace", name).await? {
            Some(_) => {
                Ok(AppliedObject { kind: "Namespace", name: name.to_owned(), result: "unchanged" })
            }
            None => self.apply(&api, "Namespace", namespace).await,
        }
    }

    async fn apply_objects(
        &self,
        manifests: &ClusterManifests,
    ) -> Result<Vec<AppliedObject>, CommandError> {
        let mut applied = Vec::new();
        for secret in &manifests.secrets {
            applied.push(self.apply_secret(secret).await?);
        }
        let clusters = self.objects.hosted_clusters();
        applied.push(self.apply(&clusters, "HostedCluster", &manifests.hosted_cluster).await?);
        let node_pools = self.objects.node_pools();
        for node_pool in &manifests.node_pools {
            applied.push(self.apply(&node_pools, "NodePool", node_pool).await?);
        }
        Ok(applied)
    }

    /// An existing generated key stays: the cluster's data may be encrypted with it.
    async fn apply_secret(&self, secret: &SecretManifest) -> Result<AppliedObject, CommandError> {
        let api = self.objects.secrets();
        if secret.is_generated && self.fetch(&api, "Secret", &secret.name).await?.is_some() {
            let name = secret.name.clone();
            return Ok(AppliedObject { kind: "Secret", name, result: "unchanged" });
        }
        self.apply(&api, "Secret", &secret.to_json()).await
    }

    async fn apply(
        &self,
        api: &Api<DynamicObject>,
        kind: &'static str,
        object: &Value,
    ) -> Result<AppliedObject, CommandError> {
        let name = name_of(object);
        let before = self.fetch(api, kind, name).await?;
        let mut parameters = PatchParams::apply(FIELD_MANAGER);
        parameters.dry_run = self.dry_run;
        let patch = Patch::Apply(object);
        let action = format!("apply {kind} {name}");
        let write = || api.patch(name, &parameters, &patch);
        let after = self.objects.call(&action, write).await.map_err(|error| api_error(&error))?;
        let result = match before {
            None => "created",
            Some(before) if before.metadata.resource_version == after.metadata.resource_version => {
                "unchanged"
            }
            Some(_) => "configured",
        };
        Ok(AppliedObject { kind, name: name.to_owned(), result })
    }

    async fn fetch(
        &self,
        api: &Api<DynamicObject>,
        kind: &str,
        name: &str,
    ) -> Result<Option<DynamicObject>, CommandError> {
        self.objects.fetch(api, kind, name).await
    }
}

fn name_of(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}
