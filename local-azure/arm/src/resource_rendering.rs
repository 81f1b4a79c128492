//! Renders stored resources as clients see them.

use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::authorization::AccessScope;
use lanyard_emulator_state::resources::resource_store::ArmResource;
use serde_json::Value;

use super::resource_types::find_resource_type;

/// Renders the resource with an id; `null` if it does not exist.
pub fn render_resource(call: &OperationContext<'_>, id: &AccessScope) -> Value {
    let resources = &call.azure().resources;
    resources.resource(id).map_or(Value::Null, |resource| render_stored(call, resource))
}

/// Renders a stored resource.
pub fn render_stored(call: &OperationContext<'_>, resource: &ArmResource) -> Value {
    let (clouds, resources) = (call.clouds, &call.azure().resources);
    let kind = find_resource_type(call.services, &resource.kind);
    let Some(kind) = kind else { return resource.to_json() };
    let mut wire = match kind.render {
        Some(render) => render(resources, resource),
        None => resource.to_json(),
    };
    for pointer in kind.endpoints {
        match wire.pointer_mut(pointer) {
            Some(Value::String(url)) => *url = clouds.url_with_port(url),
            Some(Value::Object(urls)) => {
                for url in urls.values_mut() {
                    *url = url.as_str().map(|url| clouds.url_with_port(url)).into();
                }
            }
            _ => {}
        }
    }
    wire
}
