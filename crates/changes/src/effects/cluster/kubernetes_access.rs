//! Access to the objects of one Kubernetes cluster for effects.

use std::borrow::Cow;

use lanyard_clock::{ErrorHint, RetryClass};
use lanyard_kubernetes::{ApiError, ObjectClient, ObjectReference};
use serde_json::Value;

use super::ids::{KubernetesObjectId, OtherClusterError};
use super::kubernetes_bodies::{is_deleted, is_restored, object_resource, restored_body};
use crate::accepted_write::WriteProgress;
use crate::effect::EffectAccess;
use crate::effect_error::{EffectError, EffectErrorCause};
use crate::live_state::LiveResource;
use crate::ownership_tags::OwnershipTags;
use crate::recorded_resource::RecordedResource;
use crate::resource_id::ResourceId;

/// The name of lanyard in `managedFields`.
const FIELD_MANAGER: &str = "lanyard-fleet";

/// Reads and writes the objects of one cluster.
#[derive(Debug)]
pub struct KubernetesAccess {
    /// The name of the cluster in ids.
    pub cluster: String,
    /// The client of its API server.
    pub client: ObjectClient,
}

/// A request for an object failed.
#[derive(Debug, thiserror::Error)]
pub enum KubernetesEffectError {
    /// The API server rejected the request, or could not be reached.
    #[error(transparent)]
    Call(ApiError),
    /// The id is not one of this cluster.
    #[error(transparent)]
    OtherCluster(#[from] OtherClusterError),
    /// The object waits for its finalizers.
    #[error("{object} still exists after its deletion; its finalizers: {finalizers}")]
    NotDeleted {
        /// Kind and name.
        object: String,
        /// The finalizers of the object.
        finalizers: Value,
    },
}

impl KubernetesAccess {
    /// Applies an object as lanyard.
    pub(super) async fn apply(
        &self,
        object: &ObjectReference,
        body: &Value,
        takes_fields: bool,
    ) -> Result<WriteProgress, EffectError> {
        let applied = self.client.apply(object, body, FIELD_MANAGER, takes_fields).await;
        Ok(WriteProgress::Complete(applied.map_err(KubernetesEffectError::Call)?))
    }

    /// The object with this id, which must be one of this cluster.
    pub(super) fn object(&self, id: &ResourceId) -> Result<ObjectReference, EffectError> {
        let object = KubernetesObjectId::object_of(&self.cluster, id);
        Ok(object.map_err(KubernetesEffectError::OtherCluster)?)
    }
}

impl EffectAccess for KubernetesAccess {
    fn is_container(id: &ResourceId) -> bool {
        KubernetesObjectId::parse(id).is_some_and(|id| id.is_namespace())
    }

    fn is_changing(body: &Value) -> bool {
        is_deleted(body)
    }

    fn live_resource(id: &ResourceId, body: Value) -> LiveResource {
        object_resource(id.clone(), body)
    }

    fn is_restored(_id: &ResourceId, body: &Value, live: &Value) -> bool {
        is_restored(body, live)
    }

    async fn read(&self, id: &ResourceId) -> Result<Option<LiveResource>, EffectError> {
        let found = self.client.read(&self.object(id)?).await;
        let found = found.map_err(KubernetesEffectError::Call)?;
        Ok(found.map(|body| object_resource(id.clone(), body)))
    }

    /// Lanyard does not list the objects of a namespace, so it never deletes one unasked.
    async fn read_foreign_content(
        &self,
        id: &ResourceId,
        _planned: &[&RecordedResource],
        _tags: &OwnershipTags,
    ) -> Result<Vec<String>, EffectError> {
        Ok(vec![format!("{id}/*")])
    }

    /// The engine repeats the deletion of an object with finalizers until the object does not exist any more.
    async fn delete(
        &self,
        id: &ResourceId,
        live: &LiveResource,
    ) -> Result<WriteProgress, EffectError> {
        let object = self.object(id)?;
        let uid = live.creation.id.as_deref().unwrap_or_default();
        let remaining = self.client.delete(&object, uid).await;
        let remaining = remaining.map_err(KubernetesEffectError::Call)?;
        // The API server also returns some objects that no longer exist, such as ServiceAccounts.
        let Some(remaining) = remaining.filter(is_deleted) else {
            return Ok(WriteProgress::Complete(Value::Null));
        };
        // Those of a namespace are in its spec, too.
        let finalizers = ["/metadata/finalizers", "/spec/finalizers"];
        let finalizers = finalizers.iter().filter_map(|path| remaining.pointer(path)).cloned();
        let (object, finalizers) = (object.to_string(), finalizers.collect());
        Err(KubernetesEffectError::NotDeleted { object, finalizers }.into())
    }

    async fn restore(
        &self,
        id: &ResourceId,
        body: &Value,
        live: Option<&LiveResource>,
    ) -> Result<WriteProgress, EffectError> {
        let (object, body) = (self.object(id)?, restored_body(body, live.map(|live| &live.body)));
        if live.is_none() {
            return self.apply(&object, &body, false).await;
        }
        let replaced = self.client.replace(&object, &body, FIELD_MANAGER).await;
        Ok(WriteProgress::Complete(replaced.map_err(KubernetesEffectError::Call)?))
    }
}

impl From<KubernetesEffectError> for EffectError {
    fn from(error: KubernetesEffectError) -> Self {
        let (class, cause) = match &error {
            KubernetesEffectError::Call(call) => match call {
                ApiError::Conflict { .. } => {
                    (RetryClass::Denied, EffectErrorCause::Conflict { after_accepting: false })
                }
                // For a write, the namespace is missing.
                _ if call.is_not_found() => (RetryClass::Denied, EffectErrorCause::NotFound),
                _ => (call.retry_class(), EffectErrorCause::Rejected),
            },
            KubernetesEffectError::NotDeleted { .. } => {
                (RetryClass::Busy, EffectErrorCause::StillRunning)
            }
            KubernetesEffectError::OtherCluster(_) => {
                (RetryClass::Invalid, EffectErrorCause::Rejected)
            }
        };
        Self::new(class, cause, error)
    }
}

impl ErrorHint for KubernetesEffectError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            // The hints of the client are those for a program in the cluster.
            Self::Call(ApiError::Refused { status: 401 | 403, .. }) => {
                "check that your account has the permission in this cluster: `kubectl auth can-i`"
            }
            Self::Call(ApiError::Refused { status: 404, .. }) => "create the namespace first",
            Self::Call(ApiError::NotServed { .. }) => "install the CRD of this kind first",
            Self::Call(error) => return error.hint(),
            Self::OtherCluster(error) => return error.hint(),
            Self::NotDeleted { .. } => {
                "check the controllers of the finalizers, then run the command again"
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use lanyard_kubernetes::FieldConflict;

    use super::*;

    #[test]
    fn only_an_error_that_can_pass_is_repeated() {
        let refused = |status| ApiError::Refused {
            action: "apply ConfigMap shop/a".to_owned(),
            status,
            reason: String::new(),
            message: "no".to_owned(),
            retry_after: None,
        };
        let [manager, field] = ["kubectl", ".data.a"].map(str::to_owned);
        let action = "apply ConfigMap shop/a".to_owned();
        let conflict =
            ApiError::Conflict { action, conflicts: vec![FieldConflict { manager, field }] };
        let in_the_way = EffectErrorCause::Conflict { after_accepting: false };
        for (call, class, cause) in [
            (conflict, RetryClass::Denied, in_the_way),
            (refused(404), RetryClass::Denied, EffectErrorCause::NotFound),
            (refused(403), RetryClass::Denied, EffectErrorCause::Rejected),
            (refused(422), RetryClass::Invalid, EffectErrorCause::Rejected),
            (refused(409), RetryClass::PreconditionFailed, EffectErrorCause::Rejected),
            (refused(503), RetryClass::Transient, EffectErrorCause::Rejected),
        ] {
            let error = EffectError::from(KubernetesEffectError::Call(call));
            assert_eq!((error.class, error.cause), (class, cause), "{error}");
            assert!(error.hint().is_some_and(|hint| !hint.contains("chart")), "{error}");
        }
    }
}
