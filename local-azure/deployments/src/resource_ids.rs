//! Resource ids of deployments, built from a type and the segments of a name.

use lanyard_emulator_state::authorization::AccessScope;
use lanyard_emulator_state::resources::resource_store::RESOURCE_GROUP_TYPE;

/// Returns the id of a subscription, or of a resource group in it.
pub(super) fn scope_id(subscription: &str, group: Option<&str>) -> String {
    match group {
        Some(group) => format!("/subscriptions/{subscription}/resourceGroups/{group}"),
        None => format!("/subscriptions/{subscription}"),
    }
}

/// Joins a type and the segments of a name:
/// `Microsoft.Network/virtualNetworks/{name}/subnets/{name}`. Returns `None` if the numbers of
/// segments differ.
pub(super) fn relative_resource_id(resource_type: &str, names: &[&str]) -> Option<String> {
    let (namespace, types) = resource_type.split_once('/')?;
    let types: Vec<_> = types.split('/').collect();
    if types.len() != names.len() {
        return None;
    }
    let mut id = namespace.to_owned();
    for (kind, name) in types.into_iter().zip(names) {
        for segment in [kind, name] {
            id.push('/');
            id.push_str(segment);
        }
    }
    Some(id)
}

/// Returns the id of a resource at `scope`. That of a resource group has no `/providers/`.
pub(super) fn resource_id(scope: &str, relative_id: &str) -> String {
    let base = scope.trim_end_matches('/');
    match strip_resource_group_type(relative_id) {
        Some(name) => format!("{base}/resourceGroups/{name}"),
        None => format!("{base}/providers/{relative_id}"),
    }
}

/// Parses the id of a resource in a template: `/subscriptions/…`, or `Namespace/type/name` relative
/// to `scope`. The error text is a full sentence.
pub(super) fn parse_template_id(scope: &str, text: &str) -> Result<AccessScope, String> {
    let malformed = || format!("The resource identificator '{text}' is malformed.");
    let whole = match text.strip_prefix('/') {
        Some(absolute) => match absolute.split_once("/providers/") {
            Some((scope, relative)) if strip_resource_group_type(relative).is_some() => {
                resource_id(&format!("/{scope}"), relative)
            }
            _ => text.to_owned(),
        },
        // A namespace, followed by pairs of type and name.
        None if text.split('/').count() >= 3 && text.split('/').count() % 2 == 1 => {
            resource_id(scope, text)
        }
        None => return Err(malformed()),
    };
    whole.parse().map_err(|error| format!("{} {error}.", malformed()))
}

/// Returns the name in `Microsoft.Resources/resourceGroups/{name}`; `None` for other types.
fn strip_resource_group_type(relative_id: &str) -> Option<&str> {
    let (kind, name) = relative_id.rsplit_once('/')?;
    kind.eq_ignore_ascii_case(RESOURCE_GROUP_TYPE).then_some(name)
}

/// Returns the part of an id after its first `/providers/`, or the whole id if it has none.
pub(super) fn template_relative_id(id: &str) -> &str {
    id.split_once("/providers/").map_or(id, |(_, relative)| relative)
}
