//! The registered resource types.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{LazyLock, OnceLock};

use http::Method;
use lanyard_emulator_core::emulated_service::ServiceSet;
use lanyard_emulator_state::azure_service::AzureService;

use super::namespaces::find_namespace;
use super::resource_type::ResourceType;

/// The resource types that resource providers registered, by name.
#[derive(Debug, Default)]
pub struct ResourceTypes {
    by_name: HashMap<String, &'static ResourceType>,
    /// The types of each namespace for which the services have operations. Set at the first use.
    implemented: OnceLock<BTreeMap<&'static str, BTreeSet<String>>>,
}

impl ResourceTypes {
    /// Collects the types in the tables of resource providers.
    pub fn new(tables: &[&'static [ResourceType]]) -> Self {
        let types = tables.iter().copied().flatten();
        Self {
            by_name: types.map(|known| (known.name.to_ascii_lowercase(), known)).collect(),
            implemented: OnceLock::new(),
        }
    }

    /// Finds a type by its name, ignoring case.
    pub(crate) fn find(&self, name: &str) -> Option<&'static ResourceType> {
        self.by_name.get(&name.to_ascii_lowercase()).copied()
    }
}

/// Returns the types of a set of services; none if no resource provider is registered.
fn registered_types(services: &ServiceSet) -> &'static ResourceTypes {
    static NONE: LazyLock<ResourceTypes> = LazyLock::new(ResourceTypes::default);
    services.registry().unwrap_or(&NONE)
}

/// Finds a registered type by its name, ignoring case.
pub fn find_resource_type(services: &ServiceSet, name: &str) -> Option<&'static ResourceType> {
    registered_types(services).find(name)
}

/// The types of each namespace for which the services have operations.
pub fn implemented_types(
    services: &ServiceSet,
) -> &'static BTreeMap<&'static str, BTreeSet<String>> {
    registered_types(services).implemented.get_or_init(|| {
        let mut types: BTreeMap<&'static str, BTreeSet<String>> = BTreeMap::new();
        for row in services.routes(AzureService::Arm).rows() {
            let Some((_, provider)) = row.path.rsplit_once("/providers/") else { continue };
            let mut segments = provider.split('/');
            let Some((namespace, _)) = segments.next().and_then(find_namespace) else { continue };
            // Resource names are placeholders between the names of types.
            let names: Vec<_> = segments.filter(|part| !part.starts_with('{')).collect();
            // The last name of an action on a resource is not a type.
            let is_action = row.method == Method::POST && provider.contains("}/");
            if !names.is_empty() && !is_action {
                types.entry(namespace).or_default().insert(names.join("/"));
            }
        }
        types
    })
}
