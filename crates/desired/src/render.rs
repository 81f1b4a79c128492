//! The desired objects as files of YAML, for review and for a repository.
//!
//! Names and bytes depend on the cluster alone: keys are sorted, and files come in a fixed order.
//! Secrets are written with `stringData`, because they hold places and no secrets, and a review
//! should see them.

use std::collections::BTreeMap;

use k8s_openapi::Resource;
use k8s_openapi::api::core::v1::{Secret, Volume};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::hosted_cluster::desired::Desired;
use crate::hosted_cluster::wiring::Wiring;

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

/// Writes the objects, and for every deployment the patch with its volumes, mounts and variables.
///
/// # Errors
/// When an object has no form in YAML; no object of [`crate::desired`] is such.
pub fn render(desired: &Desired) -> Result<Vec<RenderedFile>, RenderError> {
    let mut files = BTreeMap::new();
    for class in &desired.secret_provider_classes {
        add(&mut files, &class.kind, class.metadata.name.as_deref(), class)?;
    }
    for config_map in &desired.config_maps {
        add(&mut files, "ConfigMap", config_map.metadata.name.as_deref(), config_map)?;
    }
    for secret in &desired.secrets {
        add(&mut files, Secret::KIND, secret.metadata.name.as_deref(), &readable(secret))?;
    }
    if let Some(identity) = &desired.cluster_identity {
        add(&mut files, &identity.kind, identity.metadata.name.as_deref(), identity)?;
    }
    for (deployment, patch) in patches(desired) {
        add(&mut files, "Patch-Deployment", Some(deployment), &patch)?;
    }
    Ok(files.into_iter().map(|(name, text)| RenderedFile { name, text }).collect())
}

fn add(
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
    let value = sorted(serde_json::to_value(object)?);
    Ok(serde_saphyr::to_string(&value)?)
}

/// Keys in their order, whatever map JSON values are made of in this build.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let entries: BTreeMap<_, _> =
                map.into_iter().map(|(key, value)| (key, sorted(value))).collect();
            Value::Object(entries.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        value => value,
    }
}

fn readable(secret: &Secret) -> Secret {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let data = secret.data.iter().flatten().map(|(key, value)| (key.clone(), text(&value.0)));
    Secret { data: None, string_data: Some(data.collect()), ..secret.clone() }
}

/// Strategic merge patches by deployment.
fn patches(desired: &Desired) -> BTreeMap<&'static str, Value> {
    let mut deployments: BTreeMap<&'static str, Patch> = BTreeMap::new();
    for wiring in &desired.wirings {
        wire(&mut deployments, wiring);
    }
    deployments
        .into_iter()
        .map(|(name, patch)| (name, patch.to_value(name, &desired.namespace)))
        .collect()
}

#[derive(Default)]
struct Patch {
    volumes: Vec<Volume>,
    containers: BTreeMap<String, ContainerPatch>,
}

#[derive(Default)]
struct ContainerPatch {
    mounts: Vec<Value>,
    variables: Vec<Value>,
}

fn wire(deployments: &mut BTreeMap<&'static str, Patch>, wiring: &Wiring) {
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

impl Patch {
    fn to_value(&self, name: &str, namespace: &str) -> Value {
        let containers = self.containers.iter().map(|(name, patch)| patch.to_value(name));
        let mut pod = Map::new();
        pod.insert("containers".to_owned(), containers.collect());
        if !self.volumes.is_empty() {
            pod.insert("volumes".to_owned(), json!(self.volumes));
        }
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"template": {"spec": pod}},
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
