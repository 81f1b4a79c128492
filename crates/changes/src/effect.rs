//! What the engine changes: effects, and the access to the services that have them.

use std::fmt;

use lanyard_clock::SharedClock;
use serde_json::Value;

use crate::accepted_write::{AcceptedWrite, WaitLimits, WriteProgress};
use crate::effect_error::EffectError;
use crate::live_state::{LiveResource, LiveState};
use crate::ownership_tags::OwnershipTags;
use crate::property_diff::PropertyDifference;
use crate::recorded_resource::RecordedResource;
use crate::resource_id::ResourceId;
use crate::resource_key::ResourceKey;

/// The desired content of one resource, and how it is read, compared and written.
///
/// The engine knows no kind of effect: it decides the order, the journal entries, the repetition and the ownership, and
/// an effect sends the requests. How an effect is undone depends on its id alone, see [`EffectAccess`].
pub trait Effect: Clone + fmt::Debug + PartialEq + Send + Sync + 'static {
    /// The access that sends the requests.
    type Access: EffectAccess;

    /// Whether the resource may belong to others.
    fn usage(&self) -> EffectUsage;

    /// Whether a live resource with another name can be the desired one, because the service identifies it by its
    /// content.
    fn is_known_by_content(&self) -> bool {
        false
    }

    /// The collection in which the resource is found, if the resources of one collection are read with one list;
    /// [`Effect::find`] then finds the resource in it.
    fn collection(&self) -> Option<String> {
        None
    }

    /// The desired resource in the list of its collection; with equal content, or with the id.
    fn find(
        &self,
        id: &ResourceId,
        listed: &[LiveResource],
        live: &LiveState,
    ) -> Option<LiveResource> {
        let _ = live;
        listed.iter().find(|it| it.id == *id).cloned()
    }

    /// Reads the resource; `None` if it does not exist.
    fn read(
        &self,
        access: &Self::Access,
        id: &ResourceId,
    ) -> impl Future<Output = Result<Option<LiveResource>, EffectError>> + Send {
        access.read(id)
    }

    /// Reads the resource with equal content, after the service rejected a second one.
    fn read_equal(
        &self,
        access: &Self::Access,
        id: &ResourceId,
        live: &LiveState,
    ) -> impl Future<Output = Result<Option<LiveResource>, EffectError>> + Send {
        let _ = (access, id, live);
        std::future::ready(Ok(None))
    }

    /// The properties in which the live resource differs from the desired one. A property whose desired value is not
    /// known yet differs.
    fn diff(&self, found: &LiveResource, live: &LiveState) -> Vec<PropertyDifference>;

    /// The properties that an update sets, for a roll-back.
    ///
    /// # Errors
    ///
    /// [`UnknownValueError`] if another resource does not provide a value.
    fn updated_properties(&self, live: &LiveState) -> Result<Value, UnknownValueError>;

    /// Sends the write once: creates the resource with the tags, or changes `existing` to the desired state, if that
    /// is unchanged.
    fn write(
        &self,
        access: &Self::Access,
        id: &ResourceId,
        existing: Option<&LiveResource>,
        live: &LiveState,
        tags: &OwnershipTags,
    ) -> impl Future<Output = Result<WriteProgress, EffectWriteError>> + Send;
}

/// Whether the resource of an effect may belong to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EffectUsage {
    /// Lanyard creates the resource. One that exists without differences is used; one that differs is changed only if it
    /// belongs to lanyard.
    Own,
    /// The resource may also serve other purposes, such as a resource group for identities. It is created if it does
    /// not exist, and used as it is otherwise.
    Shared,
    /// The resource belongs to the user, and must exist. Lanyard changes the properties in which it differs, and never
    /// creates or deletes it.
    Adjusted,
    /// The resource belongs to the user, and must exist. It is only read.
    Existing,
}

impl EffectUsage {
    /// Whether the resource belongs to the user, and must exist.
    pub const fn must_exist(self) -> bool {
        matches!(self, Self::Adjusted | Self::Existing)
    }
}

/// Access to the resources of services by their ids. A destroy command and a roll-back know no more of a resource than
/// the journal records.
pub trait EffectAccess: fmt::Debug + Send + Sync {
    /// The lock of a write in lower case. Two writes with the same lock never run at the same time.
    fn write_lock(id: &ResourceId) -> String {
        id.as_str().to_ascii_lowercase()
    }

    /// Whether the deletion of `container` also deletes `content`.
    fn removes(container: &ResourceId, content: &ResourceId) -> bool {
        let _ = (container, content);
        false
    }

    /// Whether the service rejects changes of the resource, so that it is deleted and created to change it.
    fn is_immutable(id: &ResourceId) -> bool {
        let _ = id;
        false
    }

    /// Whether the deletion of the resource can remove content that the journal does not record. A roll-back cannot
    /// create such a resource again.
    fn is_container(id: &ResourceId) -> bool {
        let _ = id;
        false
    }

    /// Whether the service reports the creator of such a resource.
    fn has_creators(id: &ResourceId) -> bool {
        let _ = id;
        false
    }

    /// Whether the body shows that the service still works on the resource.
    fn is_changing(body: &Value) -> bool {
        let _ = body;
        false
    }

    /// The live resource with this body, as the service returned it.
    fn live_resource(id: &ResourceId, body: Value) -> LiveResource;

    /// Whether the live body has the properties of `body`, so that nothing has to be restored.
    fn is_restored(id: &ResourceId, body: &Value, live: &Value) -> bool;

    /// Checks that a roll-back may create the resource with this body again. A journal that another person changed could
    /// otherwise have it create any resource.
    fn may_restore(&self, id: &ResourceId, body: &Value) -> bool {
        let _ = (id, body);
        true
    }

    /// Lists the resources of a collection; a collection that does not exist is empty.
    fn list(
        &self,
        collection: &str,
    ) -> impl Future<Output = Result<Vec<LiveResource>, EffectError>> + Send {
        let _ = collection;
        std::future::ready(Ok(Vec::new()))
    }

    /// Reads the resource; `None` if it does not exist.
    fn read(
        &self,
        id: &ResourceId,
    ) -> impl Future<Output = Result<Option<LiveResource>, EffectError>> + Send;

    /// The names of what the deletion of the resource would remove although it is not one of the planned records, or
    /// nothing shows that it belongs to lanyard.
    fn read_foreign_content(
        &self,
        id: &ResourceId,
        planned: &[&RecordedResource],
        tags: &OwnershipTags,
    ) -> impl Future<Output = Result<Vec<String>, EffectError>> + Send {
        let _ = (id, planned, tags);
        std::future::ready(Ok(Vec::new()))
    }

    /// Sends the deletion of the resource that was read once.
    fn delete(
        &self,
        id: &ResourceId,
        live: &LiveResource,
    ) -> impl Future<Output = Result<WriteProgress, EffectError>> + Send;

    /// Sends the write of an earlier body once, unless the resource is another one than `live` by then.
    fn restore(
        &self,
        id: &ResourceId,
        body: &Value,
        live: Option<&LiveResource>,
    ) -> impl Future<Output = Result<WriteProgress, EffectError>> + Send;

    /// Waits until the service has done an accepted write, and returns the body of the resource. A service without
    /// accepted writes has done them before.
    fn wait(
        &self,
        write: &AcceptedWrite,
        clock: &SharedClock,
        limits: WaitLimits,
    ) -> impl Future<Output = Result<Value, EffectError>> + Send {
        let _ = (write, clock, limits);
        std::future::ready(Ok(Value::Null))
    }
}

/// A write needs a value that another resource provides.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` does not have a value that another resource needs")]
pub struct UnknownValueError(pub ResourceKey);

/// The write of an effect failed, or was not sent.
#[derive(Debug, thiserror::Error)]
pub enum EffectWriteError {
    /// The request failed.
    #[error(transparent)]
    Request(#[from] EffectError),
    /// A value of another resource is missing, so the request was not sent.
    #[error(transparent)]
    UnknownValue(#[from] UnknownValueError),
}
