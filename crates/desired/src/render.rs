//! The desired objects as files of YAML, for review and for a repository.
//!
//! Names and bytes depend on the cluster and the inputs alone: keys are sorted, and files come in a
//! fixed order. Secrets are written with `stringData`, because they hold places and no secrets, and
//! a review should see them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Secret, Volume};
use lanyard_api::{HostedControlPlane, sort_keys};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::hosted_cluster::credential_injection::CredentialInjection;
use crate::hosted_cluster::desired_state::DesiredState;
use crate::objects::{DesiredObject, OwnedKind};

#[cfg(test)]
mod tests;

/// A file of YAML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedFile {
    /// The name: `<kind>-<name>.yaml` in lower case.
    pub name: String,
    /// The YAML, one document, ending with a newline.
    pub text: String,
}

/// An object has no form in YAML.
#[derive(Debug, thiserror::Error)]
#[error("`{name}` cannot be written as YAML")]
pub struct RenderError {
    /// The name of the file.
    pub name: String,
    /// Why.
    #[source]
    pub source: RenderErrorSource,
}

/// Why an object has no form in YAML.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RenderErrorSource {
    /// It has no form in JSON either.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// The writer refused it.
    #[error(transparent)]
    Yaml(#[from] serde_saphyr::SerializeError),
}

/// Writes the objects. One that both writers write is one file. An owner whose uid is not known is
/// left out: no API server takes it.
///
/// # Errors
/// When an object has no form in YAML; no object of [`crate::desired_objects`] is such.
pub fn render_objects(objects: &[DesiredObject]) -> Result<Vec<RenderedFile>, RenderError> {
    let mut files = BTreeMap::new();
    for object in objects {
        let name = Some(object.key.name.as_str());
        add_file(&mut files, object.key.kind.info().kind, name, &reviewable_json(object)?)?;
    }
    Ok(into_sorted_files(files))
}

/// Writes for every deployment the patch with its volumes, mounts and variables, for those who make
/// the deployments themselves.
///
/// # Errors
/// When a patch has no form in YAML; no patch is such.
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

/// The object as a person reads it.
fn reviewable_json(object: &DesiredObject) -> Result<Value, RenderError> {
    let mut value = object.value.clone();
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        let owners = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut);
        if owners.is_some_and(|owners| {
            owners.retain(|owner| owner.get("uid") != Some(&json!("")));
            owners.is_empty()
        }) {
            metadata.remove("ownerReferences");
        }
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

/// Strategic merge patches by deployment.
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
        // By this label the operator finds the pods.
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
