//! Reads and applies Secrets in the Kubernetes API.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Api;
use kube::api::{Patch, PatchParams};
use lanyard_clock::ErrorHint;
use lanyard_keyvault::SharedSecretBytes;
use lanyard_kubernetes::{ApiError, ApiRetryPolicy};
use parking_lot::Mutex;
use serde::{Serialize, Serializer};
use serde_json::json;
use zeroize::{Zeroize, Zeroizing};

use super::desired::DesiredSecret;
use super::owners::missing_owners;
use super::write_decision::{
    CLASS_ANNOTATION, CONTENT_SINCE, ContentAge, SecretWriteDecision, decide_secret_write,
    overwritten_class,
};
use crate::kubernetes::FIELD_MANAGER;
use crate::kubernetes::NodeKubernetesApi;
use crate::kubernetes::digest::sha256_of_parts;

/// Applies the Secrets of this node.
///
/// Responses contain values only where a Secret is compared. The client logs responses that it cannot parse,
/// so that one response is parsed here.
#[derive(Debug)]
pub(super) struct SecretApplier {
    api: NodeKubernetesApi,
    /// The known resource version of each Secret, so that an unchanged Secret costs one read of its metadata.
    applied: Mutex<HashMap<(String, String), AppliedSecretVersion>>,
}

/// The source of a Secret: namespace, class and age of the content.
#[derive(Debug, Clone, Copy)]
pub(super) struct SecretSyncSource<'a> {
    /// The namespace of the volume and of the Secret.
    pub(super) namespace: &'a str,
    /// The class with the `secretObjects` entry.
    pub(super) class: &'a str,
    /// The age of the content of the volume.
    pub(super) age: &'a ContentAge,
}

/// The outcome of one Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SecretApplyOutcome {
    /// The Secret is in sync.
    InSync,
    /// The Secret is in sync, and had the content of another class before.
    OverwroteClass {
        /// The overwritten class.
        class: String,
    },
    /// The Secret was skipped: another node wrote it from a newer volume.
    SkippedOlder {
        /// The age of the content in the Secret.
        content_since: Timestamp,
    },
}

/// The version of a Secret after its last apply, and what was applied.
#[derive(Debug, Clone)]
struct AppliedSecretVersion {
    resource_version: Option<String>,
    /// See [`secret_fingerprint`].
    fingerprint: [u8; 32],
}

/// A Secret could not be applied.
#[derive(Debug, thiserror::Error)]
pub(super) enum SecretApplyError {
    /// The API returned an error or no response.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The type of a Secret is immutable and differs.
    #[error("Secret {namespace}/{name} exists with another type than {wanted}")]
    TypeMismatch {
        /// The namespace of the Secret.
        namespace: String,
        /// The name of the Secret.
        name: String,
        /// The type that the class requires.
        wanted: String,
    },
}

impl ErrorHint for SecretApplyError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Api(ApiError::Refused { status: 403, .. }) => {
                "the synchronization of Secrets needs `syncSecret.enabled` of the chart"
            }
            Self::Api(error) => return error.hint(),
            Self::TypeMismatch { .. } => {
                "remove that Secret, or give `secretObjects` another name or the same type"
            }
        }))
    }
}

impl SecretApplyError {
    const fn is_conflict(&self) -> bool {
        matches!(self, Self::Api(ApiError::Refused { status: 409, .. }))
    }
}

impl SecretApplier {
    pub(super) fn new(api: NodeKubernetesApi) -> Self {
        Self { api, applied: Mutex::default() }
    }

    /// Writes a Secret by server-side apply if it differs from `desired`, and adds missing owner references.
    /// Does not write if the Secret has content from a newer volume, which another node wrote
    /// ([`SecretApplyOutcome::SkippedOlder`]). `source` has the namespace, the class and the age of the volume's
    /// content. Conflicts with other writers are retried.
    pub(super) async fn apply_unless_newer(
        &self,
        source: SecretSyncSource<'_>,
        desired: &DesiredSecret,
        owners: &[OwnerReference],
    ) -> Result<SecretApplyOutcome, SecretApplyError> {
        let namespace = source.namespace;
        let key = (namespace.to_owned(), desired.name.clone());
        let fingerprint = secret_fingerprint(desired, owners);
        if let Some(known) = self.applied_version(&key, &fingerprint) {
            let metadata = self.fetch_metadata(namespace, &desired.name).await?;
            if metadata.is_some_and(|it| it.resource_version == known.resource_version) {
                return Ok(SecretApplyOutcome::InSync);
            }
        }
        self.applied.lock().remove(&key);
        let mut conflicts = 0;
        let mut overwritten = None;
        let (metadata, outcome) = loop {
            match self.apply_with_owners(source, desired, owners, &mut overwritten).await {
                Err(error) if error.is_conflict() && conflicts < MAX_CONFLICT_RETRIES => {
                    conflicts += 1;
                }
                result => break result?,
            }
        };
        if !matches!(outcome, SecretApplyOutcome::SkippedOlder { .. }) {
            let known =
                AppliedSecretVersion { resource_version: metadata.resource_version, fingerprint };
            self.applied.lock().insert(key, known);
        }
        Ok(outcome)
    }

    /// Attempts the apply of a Secret and its owners once. Stores the overwritten class in `overwritten`, so that
    /// it survives a conflict after the Secret was written.
    async fn apply_with_owners(
        &self,
        source: SecretSyncSource<'_>,
        desired: &DesiredSecret,
        owners: &[OwnerReference],
        overwritten: &mut Option<String>,
    ) -> Result<(ObjectMeta, SecretApplyOutcome), SecretApplyError> {
        let (metadata, outcome) = self.apply_if_changed(source, desired).await?;
        let outcome = match outcome {
            SecretApplyOutcome::OverwroteClass { class } => {
                *overwritten = Some(class.clone());
                SecretApplyOutcome::OverwroteClass { class }
            }
            SecretApplyOutcome::InSync => {
                overwritten.clone().map_or(SecretApplyOutcome::InSync, |class| {
                    SecretApplyOutcome::OverwroteClass { class }
                })
            }
            SecretApplyOutcome::SkippedOlder { content_since } => {
                SecretApplyOutcome::SkippedOlder { content_since }
            }
        };
        let existing = metadata.owner_references.as_deref().unwrap_or_default();
        let missing = missing_owners(existing, owners);
        if missing.is_empty() {
            return Ok((metadata, outcome));
        }
        let (namespace, name) = (source.namespace, &desired.name);
        Ok((self.add_owners(namespace, name, &metadata, &missing).await?, outcome))
    }

    /// Reads a Secret and writes it if it differs. A concurrent write of another client causes a conflict,
    /// which invalidates the decision.
    async fn apply_if_changed(
        &self,
        source: SecretSyncSource<'_>,
        desired: &DesiredSecret,
    ) -> Result<(ObjectMeta, SecretApplyOutcome), SecretApplyError> {
        let SecretSyncSource { namespace, class, age } = source;
        let existing = self.fetch_secret(namespace, &desired.name).await?;
        let now = self.api.clock().now();
        let change = decide_secret_write(existing.0.as_ref(), desired, age, now, FIELD_MANAGER);
        let overwritten = overwritten_class(existing.0.as_ref(), desired, class, FIELD_MANAGER);
        let metadata = existing.metadata();
        drop(existing);
        match change {
            SecretWriteDecision::Apply { content_since: stamp } => {
                let start = self.api.clock().monotonic();
                let applied =
                    self.apply_secret((namespace, class), desired, stamp, metadata).await?;
                let took = self.api.clock().monotonic().saturating_sub(start);
                self.api.record_metrics(|metrics| metrics.record_secret_sync(took));
                let outcome = overwritten.map_or(SecretApplyOutcome::InSync, |class| {
                    SecretApplyOutcome::OverwroteClass { class }
                });
                Ok((applied, outcome))
            }
            SecretWriteDecision::TypeMismatch => Err(SecretApplyError::TypeMismatch {
                namespace: namespace.to_owned(),
                name: desired.name.clone(),
                wanted: desired.secret_type.clone(),
            }),
            SecretWriteDecision::UpToDate => Ok((metadata, SecretApplyOutcome::InSync)),
            SecretWriteDecision::NewerContentExists { content_since } => {
                Ok((metadata, SecretApplyOutcome::SkippedOlder { content_since }))
            }
        }
    }

    /// Returns the known version of a Secret, if it was applied with this fingerprint.
    fn applied_version(
        &self,
        key: &(String, String),
        fingerprint: &[u8; 32],
    ) -> Option<AppliedSecretVersion> {
        self.applied.lock().get(key).filter(|it| it.fingerprint == *fingerprint).cloned()
    }

    /// Drops the known versions of Secrets in namespaces without a pod status.
    pub(super) fn retain_namespaces(&self, namespaces: impl Fn(&str) -> bool) {
        self.applied.lock().retain(|(namespace, _), _| namespaces(namespace));
    }

    fn secrets_api(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(self.api.client().clone(), namespace)
    }

    async fn fetch_metadata(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<ObjectMeta>, ApiError> {
        let secrets = self.secrets_api(namespace);
        let action = format!("read the metadata of Secret {namespace}/{name}");
        let partial = self
            .api
            .call_optional(ApiRetryPolicy::STANDARD, action, || secrets.get_metadata(name))
            .await?;
        Ok(partial.map(|partial| partial.metadata))
    }

    async fn fetch_secret(&self, namespace: &str, name: &str) -> Result<ExistingSecret, ApiError> {
        let action = format!("read Secret {namespace}/{name}");
        // Namespace and name are Kubernetes object names and contain no path separators.
        let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
        let read = async || {
            let request = http::Request::get(&path).body(Vec::new());
            let request = request.map_err(kube::Error::HttpError)?;
            self.api.client().request_text(request).await
        };
        let Some(text) = self.api.call_optional(ApiRetryPolicy::STANDARD, &action, read).await?
        else {
            return Ok(ExistingSecret(None));
        };
        let text = Zeroizing::new(text);
        match serde_json::from_str(&text) {
            Ok(secret) => Ok(ExistingSecret(Some(secret))),
            Err(error) => Err(ApiError::of(&kube::Error::SerdeError(error), action)),
        }
    }

    /// Applies a Secret only in place of the version that was read; if there was none, only if there still is
    /// none.
    async fn apply_secret(
        &self,
        (namespace, class): (&str, &str),
        desired: &DesiredSecret,
        stamp: Timestamp,
        read: ObjectMeta,
    ) -> Result<ObjectMeta, ApiError> {
        let mut annotations = desired.annotations.clone();
        annotations.insert(CONTENT_SINCE.to_owned(), stamp.to_string());
        annotations.insert(CLASS_ANNOTATION.to_owned(), class.to_owned());
        let secret = AppliedSecret {
            api_version: "v1",
            kind: "Secret",
            metadata: ObjectMeta {
                name: Some(desired.name.clone()),
                namespace: Some(namespace.to_owned()),
                labels: Some(desired.labels.clone()),
                annotations: Some(annotations),
                uid: read.uid,
                resource_version: read
                    .resource_version
                    .or_else(|| Some(ABSENT_RESOURCE_VERSION.to_owned())),
                ..ObjectMeta::default()
            },
            secret_type: &desired.secret_type,
            data: SecretValues(&desired.data),
        };
        let secrets = self.secrets_api(namespace);
        let action = format!("apply Secret {namespace}/{}", desired.name);
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let patch = Patch::Apply(secret);
        let apply = || secrets.patch_metadata(&desired.name, &parameters, &patch);
        self.api.call(ApiRetryPolicy::STANDARD, action, apply).await.map(|partial| partial.metadata)
    }

    /// Adds owners and keeps existing ones: the API server merges lists of owners by uid.
    async fn add_owners(
        &self,
        namespace: &str,
        name: &str,
        existing: &ObjectMeta,
        missing: &[OwnerReference],
    ) -> Result<ObjectMeta, ApiError> {
        // The response becomes the known version of this Secret, so it must be the Secret that was read or
        // applied. With uid and resource version, any change since then causes a conflict.
        let patch = Patch::Strategic(json!({
            "metadata": {
                "uid": existing.uid,
                "resourceVersion": existing.resource_version,
                "ownerReferences": missing,
            },
        }));
        let secrets = self.secrets_api(namespace);
        let action = format!("add owners to Secret {namespace}/{name}");
        let parameters =
            PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let patch = || secrets.patch_metadata(name, &parameters, &patch);
        self.api.call(ApiRetryPolicy::STANDARD, action, patch).await.map(|partial| partial.metadata)
    }
}

/// The Secret that was read, if it exists. Its values are zeroized on drop.
struct ExistingSecret(Option<Secret>);

impl ExistingSecret {
    fn metadata(&self) -> ObjectMeta {
        self.0.as_ref().map(|secret| secret.metadata.clone()).unwrap_or_default()
    }
}

impl Drop for ExistingSecret {
    fn drop(&mut self) {
        let data = self.0.iter_mut().filter_map(|secret| secret.data.as_mut());
        data.flat_map(BTreeMap::values_mut).for_each(|value| value.0.zeroize());
    }
}

/// The fields of a Secret that this field manager applies.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AppliedSecret<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: ObjectMeta,
    #[serde(rename = "type")]
    secret_type: &'a str,
    data: SecretValues<'a>,
}

/// The values of a Secret: base64 in JSON, omitted from the debug form.
struct SecretValues<'a>(&'a BTreeMap<String, SharedSecretBytes>);

impl Serialize for SecretValues<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let encoded = |value: &SharedSecretBytes| Zeroizing::new(STANDARD.encode(value.expose()));
        let values: Vec<_> = self.0.iter().map(|(key, value)| (key, encoded(value))).collect();
        serializer.collect_map(values.iter().map(|(key, value)| (key, value.as_str())))
    }
}

impl fmt::Debug for SecretValues<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.0.keys()).finish()
    }
}

/// The digest of a desired Secret and its owners.
fn secret_fingerprint(desired: &DesiredSecret, owners: &[OwnerReference]) -> [u8; 32] {
    let pair = |(key, value): (&'_ String, &'_ String)| format!("{key}={value}");
    let mut texts = vec![desired.secret_type.clone()];
    for pairs in [&desired.labels, &desired.annotations] {
        texts.push(pairs.len().to_string());
        texts.extend(pairs.iter().map(pair));
    }
    texts.extend(owners.iter().map(|owner| owner.uid.clone()));
    texts.extend(desired.data.keys().cloned());
    let texts = texts.iter().map(String::as_bytes);
    sha256_of_parts(texts.chain(desired.data.values().map(SharedSecretBytes::expose)))
}

/// A resource version that no Secret has: etcd counts every write, and its first ones are not Secrets. With
/// it, an apply creates the object if it does not exist, and conflicts if it does. A create would instead
/// assign the fields to an update by the manager, which no later apply removes.
const ABSENT_RESOURCE_VERSION: &str = "1";
/// The number of conflicts after which an error is returned.
const MAX_CONFLICT_RETRIES: u32 = 3;

#[cfg(test)]
mod tests;
