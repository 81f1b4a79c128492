//! The write and the deletion of a resource, as the code of its resource type checks them.

use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_core::token::AuthenticatedCaller;
use lanyard_emulator_state::authorization::AccessScope;
use lanyard_emulator_state::resources::resource_store::{ArmResource, ArmResourceStore};
use serde_json::{Map, Value, json};

/// A resource that is about to be written.
#[derive(Debug)]
pub struct ResourceWrite<'w, 'c> {
    pub call: &'w mut OperationContext<'c>,
    pub caller: &'w AuthenticatedCaller,
    pub id: &'w AccessScope,
    /// The resource before the write; `None` if the write creates it.
    pub existing: Option<ArmResource>,
    /// The body to store, without `properties`.
    pub body: Map<String, Value>,
    pub properties: Map<String, Value>,
    /// The child resources in the body, by type. They replace all existing children of the type.
    pub children: Vec<(&'static str, Vec<ArmResource>)>,
    /// Further resources that the write creates, for example the network interface of a private endpoint.
    pub others: Vec<ArmResource>,
    /// Whether the operation stays in progress until something outside of Azure Resource Manager ends it.
    pub is_held: bool,
}

impl ResourceWrite<'_, '_> {
    /// The stored resources.
    pub fn resources(&self) -> &ArmResourceStore {
        &self.call.azure().resources
    }

    /// Sets a property that the client did not send: to the existing value, or else to `value`.
    pub fn default_property(&mut self, name: &str, value: Value) {
        let existing = self.existing.as_ref().and_then(|known| known.property(name)).cloned();
        self.properties.entry(name.to_owned()).or_insert(existing.unwrap_or(value));
    }

    /// Sets `resourceGuid`, which the client cannot change.
    pub fn service_guid(&mut self) {
        let id = self.call.ids.next_uuid();
        self.service_property("resourceGuid", || json!(id));
    }

    /// Replaces the child resources of a type.
    pub fn replace_children(&mut self, kind: &'static str, children: Vec<ArmResource>) {
        self.children.push((kind, children));
    }

    /// Sets a property that clients cannot write: to the existing value, or else to a new one.
    pub fn service_property(&mut self, name: &str, value: impl FnOnce() -> Value) {
        let existing = self.existing.as_ref().and_then(|known| known.property(name)).cloned();
        self.properties.insert(name.to_owned(), existing.unwrap_or_else(value));
    }
}

/// A resource that is about to be deleted, with everything below it.
#[derive(Debug)]
pub struct ResourceDeletion<'a> {
    pub resources: &'a ArmResourceStore,
    pub resource: &'a ArmResource,
    /// The scope whose deletion was requested: resources within it do not prevent the deletion.
    pub scope: &'a AccessScope,
}

impl ResourceDeletion<'_> {
    /// The resources outside of the deleted scope that refer to this resource or to its children.
    pub fn referrers(&self) -> impl Iterator<Item = &AccessScope> {
        self.resources
            .referrers_within(&self.resource.id)
            .filter(|referrer| !self.scope.contains(referrer))
    }
}
