//! The values that filters compare are those that reads return.

use lanyard_emulator_state::directory::{
    EntraDirectory, FIRST_PARTY_APPLICATIONS, Group, ServicePrincipal, ServicePrincipalKind,
};

use super::super::entity::GraphEntity;
use super::super::filter::{FilterKind, FilterValue};
use super::*;

/// The filterable properties of an entity whose value in filters is another one than that of reads.
fn differing_properties<E: GraphEntity>(directory: &EntraDirectory, entity: &E) -> Vec<String> {
    let json = entity.to_json(directory);
    let differs = |name: &str, kind: FilterKind| {
        let read = json.get(name).cloned().unwrap_or_default();
        let expected = match (kind, &read) {
            (FilterKind::Time, Value::String(text)) => FilterValue::Time(text.parse().unwrap()),
            _ => FilterValue::from(&read),
        };
        let found = entity.query_value(directory, name);
        (found != expected).then(|| format!("{} {name}: {found:?}, not {read}", entity.id()))
    };
    E::TARGET.properties.iter().filter_map(|it| differs(it.name, it.kind)).collect()
}

fn managed_identity(id: u128, resource: &str) -> ServicePrincipal {
    let kind = ServicePrincipalKind::ManagedIdentity { resource_id: resource.parse().unwrap() };
    let (client, tenant) = (EntraClientId::from(Uuid::from_u128(id)), TENANT.parse().unwrap());
    ServicePrincipal::new(Uuid::from_u128(id), client, tenant, "identity", kind)
}

const LOWER_CASE: &str = "/subscriptions/s/resourcegroups/g/providers/microsoft.managedidentity/userassignedidentities/low";
const SYSTEM_ASSIGNED: &str =
    "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/vm";

#[test]
fn filters_compare_the_values_that_reads_return() {
    let mut azure = state_with_users();
    let directory = &mut azure.directory;
    let tenant: lanyard_vocabulary::EntraTenantId = TENANT.parse().unwrap();
    directory.insert_group(Group {
        object_id: Uuid::from_u128(0xf1),
        tenant: tenant.clone(),
        display_name: "team".to_owned(),
        created: start_time(),
        members: std::collections::BTreeSet::new(),
        owners: Vec::new(),
        properties: serde_json::Map::new(),
    });
    directory.insert_service_principal(managed_identity(0xf2, LOWER_CASE));
    directory.insert_service_principal(managed_identity(0xf3, SYSTEM_ASSIGNED));
    let client = APP.parse().unwrap();
    "renamed".clone_into(
        &mut directory.service_principal_by_client_id_mut(client).unwrap().display_name,
    );
    let known = FIRST_PARTY_APPLICATIONS.map(|known| known.service_principal(&tenant));
    let directory = &*directory;
    let mut differing = Vec::new();
    for user in directory.users().values() {
        differing.extend(differing_properties(directory, user));
    }
    for group in directory.groups().values() {
        differing.extend(differing_properties(directory, group));
    }
    for application in directory.applications().values() {
        differing.extend(differing_properties(directory, application));
    }
    for principal in directory.service_principals().values().chain(&known) {
        differing.extend(differing_properties(directory, principal));
    }
    assert_eq!(differing, [""; 0]);
}

#[test]
fn managed_identities_are_found_by_their_alternative_names() {
    let graph = GraphFixture::new();
    {
        let directory = &mut graph.probe.engine.state().azure.directory;
        directory.insert_service_principal(managed_identity(0xf2, LOWER_CASE));
        directory.insert_service_principal(managed_identity(0xf3, SYSTEM_ASSIGNED));
    }
    for (name, expected) in [
        ("isExplicit=False", vec![0xf3]),
        (SYSTEM_ASSIGNED, vec![0xf3]),
        (LOWER_CASE, vec![0xf2]),
        ("isExplicit=True", vec![0xc2, 0xc3, 0xf2]),
    ] {
        let path = format!("/servicePrincipals?$filter=alternativeNames/any(n:n eq '{name}')");
        let expected: Vec<_> =
            expected.into_iter().map(|id| Uuid::from_u128(id).to_string()).collect();
        assert_eq!(graph.list(&path, "id"), expected, "{name}");
    }
}
