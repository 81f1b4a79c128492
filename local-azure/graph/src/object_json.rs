//! Lists of objects of several types: owners, members, and results of look-ups by id.

use lanyard_emulator_state::directory::{
    Application, DirectoryObject, EntraDirectory, Group, ServicePrincipal, User,
};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::entity::{GraphEntity, selected_json};
use super::filter::{FilterTarget, FilterValue, FilterableProperty};
use super::schema::GraphProperty;

const fn filter_target(object: &DirectoryObject<'_>) -> FilterTarget {
    match object {
        DirectoryObject::Application(_) => Application::TARGET,
        DirectoryObject::ServicePrincipal(_) => ServicePrincipal::TARGET,
        DirectoryObject::User(_) => User::TARGET,
        DirectoryObject::Group(_) => Group::TARGET,
    }
}

/// The name of the type of an object, such as `servicePrincipal`.
pub(super) const fn type_name(object: &DirectoryObject<'_>) -> &'static str {
    filter_target(object).type_name
}

/// The name of the type of an object in messages, such as `ServicePrincipal`.
pub(super) const fn resource_name(object: &DirectoryObject<'_>) -> &'static str {
    filter_target(object).resource
}

impl GraphEntity for DirectoryObject<'_> {
    const TARGET: FilterTarget = FilterTarget {
        resource: "DirectoryObject",
        type_name: "directoryObject",
        properties: &[
            FilterableProperty::text("id"),
            FilterableProperty::text("displayName").advanced(),
        ],
    };
    const PROPERTIES: &'static [GraphProperty] = &[];

    fn id(&self) -> String {
        self.object_id().to_string()
    }

    fn filter_value<'a>(
        &'a self,
        _directory: &'a EntraDirectory,
        _property: &str,
    ) -> FilterValue<'a> {
        FilterValue::text(self.display_name())
    }

    /// The properties that a read of the object returns by default, with its type.
    fn to_json(&self, directory: &EntraDirectory) -> Map<String, Value> {
        let mut json = match self {
            Self::Application(application) => default_json(directory, *application),
            Self::ServicePrincipal(principal) => default_json(directory, *principal),
            Self::User(user) => default_json(directory, *user),
            Self::Group(group) => default_json(directory, *group),
        };
        let odata_type = format!("#microsoft.graph.{}", type_name(self));
        json.insert("@odata.type".to_owned(), json!(odata_type));
        json
    }
}

fn default_json<E: GraphEntity>(directory: &EntraDirectory, entity: &E) -> Map<String, Value> {
    selected_json(directory, entity, &[], &[]).unwrap_or_default()
}

/// The JSON of the existing objects among `ids`.
pub(super) fn objects_json(directory: &EntraDirectory, ids: &[Uuid]) -> Value {
    let objects = ids.iter().filter_map(|id| directory.object(*id));
    objects.map(|object| Value::Object(object.to_json(directory))).collect()
}

/// The JSON of the groups of which an object is a direct member.
pub(super) fn groups_json(directory: &EntraDirectory, member: Uuid) -> Value {
    let groups = directory.direct_groups_of(member).map(DirectoryObject::Group);
    groups.map(|group| Value::Object(group.to_json(directory))).collect()
}
