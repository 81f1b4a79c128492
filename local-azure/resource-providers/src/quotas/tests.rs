use http::StatusCode;
use lanyard_emulator::testing::authorization_fixture::{AuthorizationFixture, GROUP, SUB, code};
use lanyard_emulator::testing::reply_json;
use lanyard_emulator_state::settings::SettingsChange;
use serde_json::{Value, json};

const NETWORK: &str = "providers/Microsoft.Network/locations/eastus/usages";
const COMPUTE: &str = "providers/Microsoft.Compute/locations/eastus/usages";

/// The current value and the limit of a usage.
fn usage(azure: &AuthorizationFixture, list: &str, name: &str) -> (u64, u64) {
    let items = azure.list(&format!("{SUB}/{list}?api-version=2023-11-01"));
    let found = items.iter().find(|it| it["name"]["value"] == name).unwrap();
    assert_eq!(found["unit"], "Count");
    assert!(found["name"]["localizedValue"].is_string(), "{found}");
    (found["currentValue"].as_u64().unwrap(), found["limit"].as_u64().unwrap())
}

fn put(
    azure: &AuthorizationFixture,
    path: &str,
    body: &Value,
) -> lanyard_emulator_state::request::ServiceReply {
    let version = if path.contains("ContainerService") { "2025-10-01" } else { "2023-11-01" };
    let url = format!("{GROUP}/providers/{path}?api-version={version}");
    azure.send(azure.owner, "PUT", &url, body)
}

fn address() -> Value {
    json!({
        "location": "eastus",
        "sku": { "name": "Standard" },
        "properties": { "publicIPAllocationMethod": "Static" },
    })
}

fn set_limit(azure: &AuthorizationFixture, name: &str, limit: u64) {
    let change = json!({ "resourceManager": { "quotas": [{ "name": name, "limit": limit }] } });
    let change = SettingsChange::from_json(change).unwrap();
    let mut state = azure.probe.engine.state();
    let settings = lanyard_emulator_state::settings::EmulatorSettings::of_state(&state.azure);
    change.applied_to(&settings).unwrap().store(&mut state.azure);
}

#[test]
fn network_usages_count_the_resources_of_the_region() {
    let azure = AuthorizationFixture::new();
    let names = ["PublicIPAddresses", "StaticPublicIPAddresses", "StandardSkuPublicIpAddresses"];
    let before = names.map(|name| usage(&azure, NETWORK, name));
    put(&azure, "Microsoft.Network/publicIPAddresses/one", &address());
    let mut elsewhere = address();
    elsewhere["location"] = json!("West US");
    put(&azure, "Microsoft.Network/publicIPAddresses/two", &elsewhere);
    for (name, (current, limit)) in names.into_iter().zip(before) {
        assert_eq!(usage(&azure, NETWORK, name), (current + 1, limit), "{name}");
    }
    let (balancers, _) = usage(&azure, NETWORK, "LoadBalancers");
    put(&azure, "Microsoft.Network/loadBalancers/one", &json!({ "location": "eastus" }));
    assert_eq!(usage(&azure, NETWORK, "LoadBalancers"), (balancers + 1, 1_000));
}

#[test]
fn compute_usages_count_the_nodes_of_managed_clusters() {
    let azure = AuthorizationFixture::new();
    let (cores, _) = usage(&azure, COMPUTE, "cores");
    let cluster = json!({
        "location": "eastus",
        "identity": { "type": "SystemAssigned" },
        "properties": { "agentPoolProfiles": [
            { "name": "system", "mode": "System", "count": 3, "vmSize": "Standard_D4s_v4" },
        ] },
    });
    let reply = put(&azure, "Microsoft.ContainerService/managedClusters/one", &cluster);
    assert_eq!(reply.status, StatusCode::CREATED, "{reply:?}");
    assert_eq!(usage(&azure, COMPUTE, "cores"), (cores + 12, 350));
    assert_eq!(usage(&azure, COMPUTE, "standardDSv4Family"), (12, 350));
    assert_eq!(usage(&azure, COMPUTE, "virtualMachineScaleSets").0, 1);
}

#[test]
fn limit_of_the_settings_is_reported_and_rejects_addresses_beyond_it() {
    let azure = AuthorizationFixture::new();
    let (current, _) = usage(&azure, NETWORK, "PublicIPAddresses");
    set_limit(&azure, "PublicIPAddresses", current + 1);
    assert_eq!(usage(&azure, NETWORK, "PublicIPAddresses"), (current, current + 1));
    let path = |name| format!("Microsoft.Network/publicIPAddresses/{name}");
    assert_eq!(put(&azure, &path("one"), &address()).status, StatusCode::CREATED);
    let rejected = put(&azure, &path("two"), &address());
    assert_eq!(code(&rejected), "PublicIPCountLimitReached");
    // A change of an existing address needs no quota.
    assert_eq!(put(&azure, &path("one"), &address()).status, StatusCode::OK);
}

#[test]
fn machine_sizes_of_a_region_have_their_family_and_vcpus() {
    let azure = AuthorizationFixture::new();
    let url = format!(
        "{SUB}/providers/Microsoft.Compute/skus?api-version=2021-07-01&$filter=location%20eq%20'eastus'"
    );
    let skus = reply_json(&azure.get(azure.owner, &url))["value"].clone();
    let skus = skus.as_array().unwrap();
    let found: Vec<_> = skus.iter().filter(|it| it["name"] == "Standard_D4s_v4").collect();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0]["family"], "standardDSv4Family");
    assert_eq!(found[0]["capabilities"][0], json!({ "name": "vCPUs", "value": "4" }));
    assert_eq!(found[0]["locations"], json!(["eastus"]));
}
