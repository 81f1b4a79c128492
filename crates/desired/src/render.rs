//! Rendering of the desired objects as YAML files, for review and for a Git repository.
//!
//! File names and contents depend only on the cluster and the inputs: keys are sorted, and files
//! have a fixed order. Secrets are written with `stringData`: they contain resource locations and
//! no secrets, and reviewers should be able to read them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Secret, Volume};
use lanyard_api::{HostedControlPlane, sort_keys};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::hash::DESIRED_STATE_HASH_ANNOTATION;
use crate::hosted_cluster::credential_injection::CredentialInjection;
use crate::hosted_cluster::desired_state::DesiredState;
use crate::objects::{DesiredObject, OwnedKind, set_desired_state_hash};

#[cfg(test)]
mod tests;

/// A rendered YAML file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedFile {
    /// The file name: `<kind>-<name>.yaml` in lower case.
    pub name: String,
    /// The content: one YAML document, ending with a newline.
    pub text: String,
}

/// An object cannot be serialized as YAML.
#[derive(Debug, thiserror::Error)]
#[error("`{name}` cannot be written as YAML")]
pub struct RenderError {
    /// The name of the file.
    pub name: String,
    /// The cause.
    #[source]
    pub source: RenderErrorSource,
}

/// The cause of a serialization failure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RenderErrorSource {
    /// The object cannot be serialized as JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// The YAML serializer failed.
    #[error(transparent)]
    Yaml(#[from] serde_saphyr::SerializeError),
}

/// Renders the objects. An object that both writers apply becomes one file. Owner references with
/// an unknown uid are omitted, because no API server accepts them. The desired-state hash is that of
/// the rendered object.
///
/// # Errors
/// Fails if an object cannot be serialized, which never happens for objects from
/// [`crate::desired_objects`].
pub fn render_objects(objects: &[DesiredObject]) -> Result<Vec<RenderedFile>, RenderError> {
    let mut files = BTreeMap::new();
    for object in objects {
        let name = Some(object.key.name.as_str());
        add_file(&mut files, object.key.kind.info().kind, name, &reviewable_json(object)?)?;
    }
    Ok(into_sorted_files(files))
}

/// Renders, for every deployment, a patch with its volumes, mounts and variables, for users who
/// create the deployments themselves.
///
/// # Errors
/// Fails if a patch cannot be serialized, which never happens.
pub fn render_deployment_patches(desired: &DesiredState) -> Result<Vec<RenderedFile>, RenderError> {
    let mut files = BTreeMap::new();
    for (deployment, patch) in deployment_patches(desired) {
        add_file(&mut files, "Patch-Deployment", Some(deployment), &patch)?;
    }
    Ok(into_sorted_files(files))
}

fn into_sorted_files(files: BTreeMap<String, String>) -> Vec<RenderedFile> {
    files.into_iter().map(|(name, text)| RenderedFile { name, text }).collect()
}

fn add_file(
    files: &mut BTreeMap<String, String>,
    kind: &str,
    name: Option<&str>,
    object: &impl Serialize,
) -> Result<(), RenderError> {
    let name = format!("{}-{}.yaml", kind.to_lowercase(), name.unwrap_or_default());
    match to_yaml(object) {
        Ok(text) => {
            files.insert(name, text);
            Ok(())
        }
        Err(source) => Err(RenderError { name, source }),
    }
}

fn to_yaml(object: &impl Serialize) -> Result<String, RenderErrorSource> {
    let value = sort_keys(serde_json::to_value(object)?);
    Ok(serde_saphyr::to_string(&value)?)
}

/// Returns the object in its form for review.
fn reviewable_json(object: &DesiredObject) -> Result<Value, RenderError> {
    let mut value = object.value.clone();
    if remove_unknown_owners(&mut value) && has_desired_state_hash(&value) {
        set_desired_state_hash(&mut value);
    }
    if object.key.kind == OwnedKind::Secret {
        let named = |source: serde_json::Error| RenderError {
            name: object.key.name.clone(),
            source: source.into(),
        };
        let secret: Secret = serde_json::from_value(value).map_err(named)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let data = secret.data.iter().flatten().map(|(key, value)| (key.clone(), text(&value.0)));
        let secret = Secret { data: None, string_data: Some(data.collect()), ..secret.clone() };
        value = serde_json::to_value(secret).map_err(named)?;
    }
    Ok(value)
}

/// Removes the owner references with an unknown uid; returns whether there were any.
fn remove_unknown_owners(object: &mut Value) -> bool {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    let Some(metadata) = metadata else { return false };
    let owners = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut);
    let Some(owners) = owners else { return false };
    let count = owners.len();
    owners.retain(|owner| owner.get("uid") != Some(&json!("")));
    let (is_changed, is_empty) = (owners.len() != count, owners.is_empty());
    if is_empty {
        metadata.remove("ownerReferences");
    }
    is_changed
}

fn has_desired_state_hash(object: &Value) -> bool {
    let annotations = object.pointer("/metadata/annotations");
    annotations.is_some_and(|it| it.get(DESIRED_STATE_HASH_ANNOTATION).is_some())
}

/// Returns strategic merge patches, by deployment.
fn deployment_patches(desired: &DesiredState) -> BTreeMap<&'static str, Value> {
    let mut deployments: BTreeMap<&'static str, DeploymentPatch> = BTreeMap::new();
    for wiring in &desired.credential_injections {
        add_injection(&mut deployments, wiring);
    }
    deployments
        .into_iter()
        .map(|(name, patch)| (name, patch.to_value(name, &desired.namespace)))
        .collect()
}

#[derive(Default)]
struct DeploymentPatch {
    volumes: Vec<Volume>,
    containers: BTreeMap<String, ContainerPatch>,
}

#[derive(Default)]
struct ContainerPatch {
    mounts: Vec<Value>,
    variables: Vec<Value>,
}

fn add_injection(
    deployments: &mut BTreeMap<&'static str, DeploymentPatch>,
    wiring: &CredentialInjection,
) {
    let patch = deployments.entry(wiring.consumer.deployment).or_default();
    patch.volumes.push(wiring.volume.clone());
    for container in &wiring.containers {
        let container = patch.containers.entry(container.clone()).or_default();
        container.mounts.push(json!(wiring.mount));
    }
    for variable in &wiring.variables {
        let patch = deployments.entry(variable.deployment).or_default();
        let container = patch.containers.entry(variable.container.to_owned()).or_default();
        container.variables.push(json!(variable.variable));
    }
}

impl DeploymentPatch {
    fn to_value(&self, name: &str, namespace: &str) -> Value {
        let containers = self.containers.iter().map(|(name, patch)| patch.to_value(name));
        let mut pod = Map::new();
        pod.insert("containers".to_owned(), containers.collect());
        if !self.volumes.is_empty() {
            pod.insert("volumes".to_owned(), json!(self.volumes));
        }
        // The operator selects pods by this label.
        let labels = json!({HostedControlPlane::CONTROL_PLANE_LABEL: namespace});
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"template": {"metadata": {"labels": labels}, "spec": pod}},
        })
    }
}

impl ContainerPatch {
    fn to_value(&self, name: &str) -> Value {
        let mut container = Map::new();
        container.insert("name".to_owned(), json!(name));
        if !self.variables.is_empty() {
            container.insert("env".to_owned(), json!(self.variables));
        }
        if !self.mounts.is_empty() {
            container.insert("volumeMounts".to_owned(), json!(self.mounts));
        }
        Value::Object(container)
    }
}
