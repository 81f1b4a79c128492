//! Secrets in the Kubernetes API.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Api;
use kube::api::{Patch, PatchParams};
use lanyard_keyvault::SecretBytes;
use lanyard_kubernetes::{ApiError, Patience};
use parking_lot::Mutex;
use serde::{Serialize, Serializer};
use serde_json::json;
use zeroize::{Zeroize, Zeroizing};

use super::compare::{CONTENT_SINCE, Change, ContentAge, OF_CLASS, decide, taken_from};
use super::desired::DesiredSecret;
use super::owners::missing_owners;
use crate::kubernetes::FIELD_MANAGER;
use crate::kubernetes::NodeApi;
use crate::kubernetes::digest::digest_of_bytes;

/// The Secrets that this node keeps in step.
///
/// Answers never carry values but where a Secret is compared: a client logs answers that it cannot
/// read, so that one reading is parsed here.
#[derive(Debug)]
pub(super) struct Secrets {
    api: NodeApi,
    /// What was found or made, so that an unchanged Secret costs one read of its metadata.
    known: Mutex<HashMap<(String, String), Known>>,
}

/// For whom a Secret is kept, and how new that is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cause<'a> {
    /// The namespace of the volume and of the Secret.
    pub(super) namespace: &'a str,
    /// The class that wants the Secret.
    pub(super) class: &'a str,
    /// How new the content of the volume is.
    pub(super) age: &'a ContentAge,
}

/// What became of a Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ensured {
    /// It says what it should.
    InStep,
    /// It says what it should, and said what another class wants before.
    TakenFrom {
        /// That class.
        class: String,
    },
    /// It was left alone: another node wrote it from a newer volume.
    StoodBack {
        /// How new that is.
        written: Timestamp,
    },
}

#[derive(Debug, Clone)]
struct Known {
    version: Option<String>,
    fingerprint: [u8; 32],
}

/// A Secret could not be kept in step.
#[derive(Debug, thiserror::Error)]
pub(super) enum SecretError {
    /// The API said no, or nothing.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The type of a Secret cannot be changed.
    #[error("the Secret {namespace}/{name} is there with another type than {wanted}")]
    OtherType {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// The type that the class wants.
        wanted: String,
    },
}

impl SecretError {
    /// What to do next.
    pub(super) fn hint(&self) -> &'static str {
        match self {
            Self::Api(ApiError::Refused { status: 403, .. }) => {
                "the synchronization of Secrets needs `syncSecret.enabled` of the chart"
            }
            Self::Api(error) => error.hint(),
            Self::OtherType { .. } => {
                "remove that Secret, or give `secretObjects` another name or the same type"
            }
        }
    }
}

impl SecretError {
    const fn is_conflict(&self) -> bool {
        matches!(self, Self::Api(ApiError::Refused { status: 409, .. }))
    }
}

impl Secrets {
    pub(super) fn new(api: NodeApi) -> Self {
        Self { api, known: Mutex::default() }
    }

    /// Makes a Secret say what it should and be owned by whom it should, at least.
    pub(super) async fn ensure(
        &self,
        cause: Cause<'_>,
        desired: &DesiredSecret,
        owners: &[OwnerReference],
    ) -> Result<Ensured, SecretError> {
        let namespace = cause.namespace;
        let key = (namespace.to_owned(), desired.name.clone());
        let fingerprint = fingerprint(desired, owners);
        if let Some(known) = self.remembered(&key, &fingerprint) {
            let metadata = self.fetch_metadata(namespace, &desired.name).await?;
            if metadata.is_some_and(|it| it.resource_version == known.version) {
                return Ok(Ensured::InStep);
            }
        }
        self.known.lock().remove(&key);
        let mut conflicts = 0;
        let mut taken = None;
        let (metadata, ensured) = loop {
            match self.bring_with_owners(cause, desired, owners, &mut taken).await {
                Err(error) if error.is_conflict() && conflicts < MOST_CONFLICTS => conflicts += 1,
                brought => break brought?,
            }
        };
        if !matches!(ensured, Ensured::StoodBack { .. }) {
            let known = Known { version: metadata.resource_version, fingerprint };
            self.known.lock().insert(key, known);
        }
        Ok(ensured)
    }

    /// Brings a Secret in step and to its owners. From whom it is taken goes to `taken`, where it
    /// outlives a conflict that comes after the Secret was written.
    async fn bring_with_owners(
        &self,
        cause: Cause<'_>,
        desired: &DesiredSecret,
        owners: &[OwnerReference],
        taken: &mut Option<String>,
    ) -> Result<(ObjectMeta, Ensured), SecretError> {
        let (metadata, ensured) = self.bring(cause, desired).await?;
        let ensured = match ensured {
            Ensured::TakenFrom { class } => {
                *taken = Some(class.clone());
                Ensured::TakenFrom { class }
            }
            Ensured::InStep => {
                taken.clone().map_or(Ensured::InStep, |class| Ensured::TakenFrom { class })
            }
            Ensured::StoodBack { written } => Ensured::StoodBack { written },
        };
        let there = metadata.owner_references.as_deref().unwrap_or_default();
        let missing = missing_owners(there, owners);
        if missing.is_empty() {
            return Ok((metadata, ensured));
        }
        let (namespace, name) = (cause.namespace, &desired.name);
        Ok((self.add_owners(namespace, name, &metadata, &missing).await?, ensured))
    }

    /// Reads a Secret and writes it where it has to say something else. Who writes it in between
    /// makes this a conflict: what was decided about what is no longer there is void.
    async fn bring(
        &self,
        cause: Cause<'_>,
        desired: &DesiredSecret,
    ) -> Result<(ObjectMeta, Ensured), SecretError> {
        let Cause { namespace, class, age } = cause;
        let existing = self.fetch(namespace, &desired.name).await?;
        let now = self.api.clock().now();
        let change = decide(existing.0.as_ref(), desired, age, now, FIELD_MANAGER);
        let taken = taken_from(existing.0.as_ref(), desired, class, FIELD_MANAGER);
        let metadata = existing.metadata();
        drop(existing);
        match change {
            Change::Apply { stamp } => {
                let start = self.api.clock().monotonic();
                let applied = self.apply((namespace, class), desired, stamp, metadata).await?;
                let took = self.api.clock().monotonic().saturating_sub(start);
                self.api.count(|metrics| metrics.secret_synced(took));
                let ensured = taken.map_or(Ensured::InStep, |class| Ensured::TakenFrom { class });
                Ok((applied, ensured))
            }
            Change::OtherType => Err(SecretError::OtherType {
                namespace: namespace.to_owned(),
                name: desired.name.clone(),
                wanted: desired.secret_type.clone(),
            }),
            Change::Nothing => Ok((metadata, Ensured::InStep)),
            Change::LeaveNewer { written } => Ok((metadata, Ensured::StoodBack { written })),
        }
    }

    /// A Secret that was found or left as it should be now.
    fn remembered(&self, key: &(String, String), fingerprint: &[u8; 32]) -> Option<Known> {
        self.known.lock().get(key).filter(|it| it.fingerprint == *fingerprint).cloned()
    }

    /// Forgets what is known of the Secrets of a namespace that nobody follows any more.
    pub(super) fn forget_all_but(&self, namespaces: impl Fn(&str) -> bool) {
        self.known.lock().retain(|(namespace, _), _| namespaces(namespace));
    }

    fn secrets(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(self.api.client().clone(), namespace)
    }

    async fn fetch_metadata(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<ObjectMeta>, ApiError> {
        let secrets = self.secrets(namespace);
        let action = format!("read the metadata of Secret {namespace}/{name}");
        let partial = self.api.find(Patience::USUAL, action, || secrets.get_metadata(name)).await?;
        Ok(partial.map(|partial| partial.metadata))
    }

    async fn fetch(&self, namespace: &str, name: &str) -> Result<Existing, ApiError> {
        let action = format!("read Secret {namespace}/{name}");
        // Both are names of objects: nothing in them ends a segment of a path.
        let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
        let read = async || {
            let request = http::Request::get(&path).body(Vec::new());
            let request = request.map_err(kube::Error::HttpError)?;
            self.api.client().request_text(request).await
        };
        let Some(text) = self.api.find(Patience::USUAL, &action, read).await? else {
            return Ok(Existing(None));
        };
        let text = Zeroizing::new(text);
        match serde_json::from_str(&text) {
            Ok(secret) => Ok(Existing(Some(secret))),
            Err(error) => Err(ApiError::of(&kube::Error::SerdeError(error), action)),
        }
    }

    /// Applies a Secret in the place of the one that was read, and of no other: where none was,
    /// only if there is none still.
    async fn apply(
        &self,
        (namespace, class): (&str, &str),
        desired: &DesiredSecret,
        stamp: Timestamp,
        read: ObjectMeta,
    ) -> Result<ObjectMeta, ApiError> {
        let mut annotations = desired.annotations.clone();
        annotations.insert(CONTENT_SINCE.to_owned(), stamp.to_string());
        annotations.insert(OF_CLASS.to_owned(), class.to_owned());
        let secret = AppliedSecret {
            api_version: "v1",
            kind: "Secret",
            metadata: ObjectMeta {
                name: Some(desired.name.clone()),
                namespace: Some(namespace.to_owned()),
                labels: Some(desired.labels.clone()),
                annotations: Some(annotations),
                uid: read.uid,
                resource_version: read.resource_version.or_else(|| Some(OF_NONE.to_owned())),
                ..ObjectMeta::default()
            },
            secret_type: &desired.secret_type,
            data: Values(&desired.data),
        };
        let secrets = self.secrets(namespace);
        let action = format!("apply Secret {namespace}/{}", desired.name);
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let patch = Patch::Apply(secret);
        let apply = || secrets.patch_metadata(&desired.name, &parameters, &patch);
        self.api.call(Patience::USUAL, action, apply).await.map(|partial| partial.metadata)
    }

    /// Adds owners and leaves those that are there: lists of owners merge by uid on the server.
    async fn add_owners(
        &self,
        namespace: &str,
        name: &str,
        existing: &ObjectMeta,
        missing: &[OwnerReference],
    ) -> Result<ObjectMeta, ApiError> {
        // The answer becomes the known version of this Secret, so it must be the Secret that was
        // read or applied: with uid and version, any change since then is a conflict.
        let patch = Patch::Strategic(json!({
            "metadata": {
                "uid": existing.uid,
                "resourceVersion": existing.resource_version,
                "ownerReferences": missing,
            },
        }));
        let secrets = self.secrets(namespace);
        let action = format!("add owners to Secret {namespace}/{name}");
        let parameters =
            PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let patch = || secrets.patch_metadata(name, &parameters, &patch);
        self.api.call(Patience::USUAL, action, patch).await.map(|partial| partial.metadata)
    }
}

/// A Secret that was read, if there is one. Its values are wiped when it goes.
struct Existing(Option<Secret>);

impl Existing {
    fn metadata(&self) -> ObjectMeta {
        self.0.as_ref().map(|secret| secret.metadata.clone()).unwrap_or_default()
    }
}

impl Drop for Existing {
    fn drop(&mut self) {
        let data = self.0.iter_mut().filter_map(|secret| secret.data.as_mut());
        data.flat_map(BTreeMap::values_mut).for_each(|value| value.0.zeroize());
    }
}

/// What we say about a Secret, and nothing else.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AppliedSecret<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: ObjectMeta,
    #[serde(rename = "type")]
    secret_type: &'a str,
    data: Values<'a>,
}

/// The values of a Secret; in JSON as base64, in the debug form not at all.
struct Values<'a>(&'a BTreeMap<String, SecretBytes>);

impl Serialize for Values<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let encoded = |value: &SecretBytes| Zeroizing::new(STANDARD.encode(value.expose()));
        let values: Vec<_> = self.0.iter().map(|(key, value)| (key, encoded(value))).collect();
        serializer.collect_map(values.iter().map(|(key, value)| (key, value.as_str())))
    }
}

impl fmt::Debug for Values<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.0.keys()).finish()
    }
}

fn fingerprint(desired: &DesiredSecret, owners: &[OwnerReference]) -> [u8; 32] {
    let pair = |(key, value): (&'_ String, &'_ String)| format!("{key}={value}");
    let mut texts = vec![desired.secret_type.clone()];
    for pairs in [&desired.labels, &desired.annotations] {
        texts.push(pairs.len().to_string());
        texts.extend(pairs.iter().map(pair));
    }
    texts.extend(owners.iter().map(|owner| owner.uid.clone()));
    texts.extend(desired.data.keys().cloned());
    let texts = texts.iter().map(String::as_bytes);
    digest_of_bytes(texts.chain(desired.data.values().map(SecretBytes::expose)))
}

/// A version that no Secret has: etcd counts every write, and its first ones are not ours. A server
/// makes what is applied with it where nothing is, and answers with a conflict where something is.
/// To create it instead would give its fields to the manager's updates, which no later apply takes
/// away again.
const OF_NONE: &str = "1";
/// How often what was decided may be void before somebody is told.
const MOST_CONFLICTS: u32 = 3;

#[cfg(test)]
mod tests;
