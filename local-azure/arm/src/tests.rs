use http::{Method, StatusCode};
use lanyard_emulator::FaultPlan;
use lanyard_emulator::testing::arm_fixture::ArmFixture;
use lanyard_emulator::testing::seeded_state::{
    SEED_TIME, issue_access_token_for, nine_identity_plan, seed_azure,
};
use lanyard_emulator::testing::{EngineFixture, reply_json};
use lanyard_emulator_core::ingress::Ingress;
use lanyard_emulator_state::identity_fault::IdentityFault;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_vocabulary::{Component, EntraClientId};
use serde_json::{Value, json};

const ARM: &str = "https://management.azure.com";
const AUDIENCE: &str = "https://management.azure.com/";
const GROUP: &str = "/subscriptions/sub/resourceGroups";

fn error_code(reply: &ServiceReply) -> String {
    reply_json(reply)["error"]["code"].as_str().unwrap_or_default().to_owned()
}

/// A request that a component's role grants and one that it denies.
fn granted_and_denied_paths(component: Component) -> [String; 2] {
    let at = |group: &str, rest: &str| format!("{GROUP}/{group}/providers/Microsoft.{rest}");
    let managed = |rest| at("demo-abcde", rest);
    let vnet = at("demo-vnet-abcde", "Network/virtualNetworks/vnet");
    let subnet = format!("{vnet}/subnets/default");
    let nsg = at("demo-nsg-abcde", "Network/networkSecurityGroups/nsg");
    let account = "Storage/storageAccounts/registrydemoabcde";
    match component {
        Component::ControlPlaneOperator | Component::Network => [vnet, subnet],
        Component::NodePoolManagement => [managed("Compute/virtualMachines"), nsg],
        Component::CloudProvider => [managed("Network/loadBalancers/demo-abcde"), vnet],
        Component::File => [managed("Storage/storageAccounts"), nsg],
        Component::Disk => [managed("Compute/disks"), managed("Network/networkInterfaces")],
        Component::Ingress => {
            let zone = "Network/privateDnsZones/demo-abcde.example.test/A/*.apps";
            [subnet, managed(zone)]
        }
        Component::ImageRegistry => [
            managed(&format!("{account}/blobServices/default/containers")),
            managed(&format!("{account}/fileServices/default/shares")),
        ],
        Component::Kms => ["/subscriptions".to_owned(), at("platform", "KeyVault/vaults/demo-kms")],
    }
}

#[test]
fn every_component_reads_only_what_its_role_grants() {
    let visit = ArmFixture::new();
    for component in Component::ALL {
        let client = visit.client(component);
        let [granted, refused] = granted_and_denied_paths(component);
        let reply = visit.get(client, &granted);
        assert_eq!(reply.status, StatusCode::OK, "{component}: {granted}");
        let reply = visit.get(client, &refused);
        assert_eq!(reply.status, StatusCode::FORBIDDEN, "{component}: {refused}");
        assert_eq!(error_code(&reply), "AuthorizationFailed");
        let message = reply_json(&reply)["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(&client.to_string()) && message.contains("/read'"), "{message}");
        assert!(message.contains(&format!("scope '{GROUP}/")), "{message}");
        let assignments =
            format!("{GROUP}/demo-abcde/providers/Microsoft.Authorization/roleAssignments");
        assert_eq!(visit.get(client, &assignments).status, StatusCode::FORBIDDEN, "{component}");
    }
}

#[test]
fn owner_can_read_everything_components_are_denied() {
    let visit = ArmFixture::new();
    for path in Component::ALL.into_iter().flat_map(granted_and_denied_paths) {
        let reply = visit.get(visit.owner, &path);
        assert_eq!(reply.status, StatusCode::OK, "{path}");
        let found = reply_json(&reply);
        let listed = found["value"].as_array().is_none_or(|items| !items.is_empty());
        assert!(listed, "{path} is an empty list");
    }
}

#[test]
fn authorization_is_decided_before_resource_lookup() {
    let visit = ArmFixture::new();
    let disk = visit.client(Component::Disk);
    let missing = format!("{GROUP}/demo-abcde/providers/Microsoft.Compute/disks/none");
    assert_eq!(error_code(&visit.get(disk, &missing)), "ResourceNotFound");
    let elsewhere = format!("{GROUP}/none/providers/Microsoft.Compute/disks/none");
    assert_eq!(error_code(&visit.get(disk, &elsewhere)), "AuthorizationFailed");
    assert_eq!(error_code(&visit.get(visit.owner, &elsewhere)), "ResourceGroupNotFound");
    let container = format!(
        "{GROUP}/demo-abcde/providers/Microsoft.Storage/storageAccounts/registrydemoabcde/blobServices/default/containers/none"
    );
    assert_eq!(error_code(&visit.get(visit.owner, &container)), "ContainerNotFound");
    let account = container.replace("registrydemoabcde", "other").replace("/none", "");
    assert_eq!(error_code(&visit.get(visit.owner, &account)), "ResourceNotFound");
}

#[test]
fn ids_keep_their_case_and_paths_match_any_case() {
    let visit = ArmFixture::new();
    let path = format!("{GROUP}/DEMO-VNET-abcde/providers/microsoft.network/VirtualNetworks/VNET");
    let found =
        reply_json(&visit.get(visit.owner, &path.replace("resourceGroups", "resourcegroups")));
    assert_eq!(
        found["id"],
        format!("{GROUP}/demo-vnet-abcde/providers/Microsoft.Network/virtualNetworks/vnet")
    );
    assert_eq!(found["type"], "Microsoft.Network/virtualNetworks");
    let tagged = visit.get(visit.owner, &path);
    assert_eq!(tagged.header("etag"), found["etag"].as_str());
    assert_eq!(found["properties"]["subnets"][0]["name"], "default");
}

#[test]
fn invalid_token_or_api_version_returns_its_error_code() {
    let visit = ArmFixture::new();
    let path = format!("{ARM}{GROUP}/demo-abcde");
    let versioned = format!("{path}?api-version=2021-04-01");
    let ask = |url: &str, audience: Option<&str>| {
        let bearer = audience.map(|audience| {
            format!("Bearer {}", issue_access_token_for(&visit.probe, visit.owner, audience))
        });
        let headers: Vec<_> = bearer.iter().map(|b| ("authorization", b.as_str())).collect();
        visit.probe.get(Ingress::Tunnel, url, &headers)
    };
    let missing = ask(&versioned, None);
    assert_eq!(
        (missing.status, error_code(&missing).as_str()),
        (StatusCode::UNAUTHORIZED, "AuthenticationFailed")
    );
    let challenge = missing.header("www-authenticate").unwrap();
    assert!(
        challenge.starts_with(
            "Bearer authorization_uri=\"https://login.microsoftonline.com/11111111-1111-4111-8111-111111111111\", error=\"invalid_token\""
        ),
        "{challenge}"
    );
    let vault = ask(&versioned, Some("https://vault.azure.net"));
    assert_eq!(vault.status, StatusCode::UNAUTHORIZED);
    assert_eq!(error_code(&vault), "InvalidAuthenticationTokenAudience");
    for audience in [
        "https://management.core.windows.net/",
        "https://management.core.windows.net",
        "https://management.azure.com",
    ] {
        assert_eq!(ask(&versioned, Some(audience)).status, StatusCode::OK, "{audience}");
    }
    assert_eq!(error_code(&ask(&path, Some(AUDIENCE))), "MissingApiVersionParameter");
    let malformed = format!("{path}?api-version=latest");
    assert_eq!(error_code(&ask(&malformed, Some(AUDIENCE))), "InvalidApiVersionParameter");
    let future = format!("{path}?api-version=2099-12-31-preview");
    assert_eq!(ask(&future, Some(AUDIENCE)).status, StatusCode::OK);
    let other = format!("{ARM}/subscriptions/none?api-version=2021-04-01");
    assert_eq!(error_code(&ask(&other, Some(AUDIENCE))), "SubscriptionNotFound");
}

#[test]
fn replies_carry_rate_limit_headers() {
    let visit = ArmFixture::new();
    let group = format!("{GROUP}/demo-abcde");
    let reply = visit.get(visit.owner, &group);
    assert!(reply.header("x-ms-ratelimit-remaining-subscription-reads").is_some());
    let reply = visit.send_request(visit.owner, "PUT", &group, r#"{"location":"eastus"}"#);
    assert!(reply.header("x-ms-ratelimit-remaining-subscription-writes").is_some());
}

#[test]
fn resource_groups_are_made_read_changed_and_removed() {
    let visit = ArmFixture::new();
    let group = format!("{GROUP}/New");
    let ask = |method: &str, given: &str| visit.send_request(visit.owner, method, &group, given);
    assert_eq!(ask("HEAD", "").status, StatusCode::NOT_FOUND);
    assert_eq!(error_code(&ask("PUT", "{}")), "LocationRequired");
    assert_eq!(ask("PUT", r#"{"location":"eastus","tags":{"a":"b"}}"#).status, StatusCode::CREATED);
    assert_eq!(ask("PUT", r#"{"location":"eastus"}"#).status, StatusCode::OK);
    assert_eq!(
        error_code(&ask("PUT", r#"{"location":"westeurope"}"#)),
        "InvalidResourceGroupLocation"
    );
    assert_eq!(ask("HEAD", "").status, StatusCode::NO_CONTENT);
    let patched = reply_json(&ask("PATCH", r#"{"tags":{"c":"d"}}"#));
    assert_eq!(patched["tags"]["c"], "d");
    assert_eq!(patched["properties"]["provisioningState"], "Succeeded");
    let tagged = |filter: &str| {
        let path = format!("{GROUP}?$filter={filter}");
        reply_json(&visit.get(visit.owner, &path))["value"].as_array().unwrap().len()
    };
    assert_eq!(tagged("tagName eq 'C'"), 1);
    assert_eq!(tagged("tagName eq 'c' and tagValue eq 'D'"), 0);
    assert_eq!(ask("DELETE", "").status, StatusCode::OK);
    assert_eq!(error_code(&ask("DELETE", "")), "ResourceGroupNotFound");
}

#[test]
fn lists_are_paged_when_top_is_set() {
    let visit = ArmFixture::new();
    let groups = "/subscriptions/sub/resourcegroups";
    let all = reply_json(&visit.get(visit.owner, groups));
    let names = |page: &Value| -> Vec<String> {
        page["value"]
            .as_array()
            .unwrap()
            .iter()
            .map(|g| g["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert!(all.get("nextLink").is_none());
    let (mut observed, mut next) = (Vec::new(), format!("{groups}?$top=2"));
    loop {
        let page = reply_json(&visit.get(visit.owner, &next));
        observed.extend(names(&page));
        let Some(link) = page["nextLink"].as_str() else { break };
        next = link.strip_prefix(ARM).unwrap().to_owned();
    }
    assert_eq!(observed, names(&all));
    assert_eq!(observed.len(), 5);
}

#[test]
fn subscription_lists_show_what_the_caller_may_read() {
    let visit = ArmFixture::new();
    let groups = reply_json(&visit.get(visit.reader, "/subscriptions/sub/resourceGroups"));
    assert_eq!(groups["value"].as_array().unwrap().len(), 1);
    assert_eq!(groups["value"][0]["name"], "demo-abcde");
    let found = reply_json(&visit.get(
        visit.owner,
        "/subscriptions/sub/resources?$filter=resourceType eq 'Microsoft.KeyVault/vaults'",
    ));
    assert_eq!(found["value"].as_array().unwrap().len(), 3);
    assert!(found["value"][0].get("properties").is_none());
    let refused = visit.get(visit.owner, "/subscriptions/sub/resources?$filter=plan eq 'x'");
    assert_eq!(error_code(&refused), "InvalidFilterInQueryString");
}

#[test]
fn deleted_resource_stays_in_lists_across_types_for_the_delay() {
    let visit = ArmFixture::new();
    visit.probe.engine.state().azure.resources.delays.deletion_seconds = 30;
    let provider = "/providers/Microsoft.ManagedIdentity/userAssignedIdentities";
    let path = format!("{GROUP}/platform{provider}/gone");
    let create = || visit.send_request(visit.owner, "PUT", &path, r#"{"location":"eastus"}"#);
    assert_eq!(create().status, StatusCode::CREATED);
    let count = |list: &str| {
        let items = reply_json(&visit.get(visit.owner, list));
        items["value"].as_array().unwrap().iter().filter(|item| item["name"] == "gone").count()
    };
    let counts = || {
        let lists =
            [format!("{GROUP}/platform/resources"), "/subscriptions/sub/resources".to_owned()];
        (lists.map(|list| count(&list)), count(&format!("{GROUP}/platform{provider}")))
    };
    assert_eq!(visit.send_request(visit.owner, "DELETE", &path, "").status, StatusCode::OK);
    assert_eq!(visit.get(visit.owner, &path).status, StatusCode::NOT_FOUND);
    assert_eq!(counts(), ([1, 1], 0));
    assert_eq!(create().status, StatusCode::CREATED);
    assert_eq!(counts(), ([1, 1], 1));
    visit.send_request(visit.owner, "DELETE", &path, "");
    visit.probe.clock.advance(std::time::Duration::from_secs(30));
    assert_eq!(counts(), ([0, 0], 0));
}

#[test]
fn identity_creates_and_deletes_its_principal() {
    let visit = ArmFixture::new();
    let path =
        format!("{GROUP}/platform/providers/Microsoft.ManagedIdentity/userAssignedIdentities/Mine");
    let created = visit.send_request(visit.owner, "PUT", &path, r#"{"location":"eastus"}"#);
    assert_eq!(created.status, StatusCode::CREATED);
    let created = reply_json(&created);
    let client: EntraClientId =
        created["properties"]["clientId"].as_str().unwrap().parse().unwrap();
    let object = created["properties"]["principalId"].clone();
    let known = visit
        .probe
        .engine
        .state()
        .azure
        .directory
        .service_principal_by_client_id(client)
        .cloned()
        .unwrap();
    assert_eq!(known.object_id.to_string(), object.as_str().unwrap());
    let repeated =
        visit.send_request(visit.owner, "PUT", &path, r#"{"location":"eastus","tags":{"a":"b"}}"#);
    assert_eq!(repeated.status, StatusCode::OK);
    assert_eq!(reply_json(&repeated)["properties"]["principalId"], object);
    assert_eq!(visit.send_request(visit.owner, "DELETE", &path, "").status, StatusCode::OK);
    assert!(
        visit.probe.engine.state().azure.directory.service_principal_by_client_id(client).is_none()
    );
    assert_eq!(visit.send_request(visit.owner, "DELETE", &path, "").status, StatusCode::NO_CONTENT);
}

#[test]
fn federated_credentials_have_their_limits() {
    let visit = ArmFixture::new();
    let base = format!(
        "{GROUP}/platform/providers/Microsoft.ManagedIdentity/userAssignedIdentities/test-workload/federatedIdentityCredentials"
    );
    let credential = |subject: &str, audiences: &str| {
        format!(
            r#"{{"properties":{{"issuer":"https://i.test","subject":"{subject}","audiences":{audiences}}}}}"#
        )
    };
    let put = |name: &str, given: &str| {
        visit.send_request(visit.owner, "PUT", &format!("{base}/{name}"), given)
    };
    let one = r#"["openshift"]"#;
    assert_eq!(put("first", &credential("s0", one)).status, StatusCode::CREATED);
    assert_eq!(put("first", &credential("s0", one)).status, StatusCode::OK);
    assert_eq!(put("second", &credential("s0", one)).status, StatusCode::CONFLICT);
    for (name, given) in [
        ("x", credential("s", one)),
        ("two", credential("s", r#"["a","b"]"#)),
        ("none", credential("s", "[]")),
        ("subject", credential("", one)),
        ("long-subject", credential(&"x".repeat(601), one)),
        ("long-audience", credential("s", &format!("[\"{}\"]", "x".repeat(601)))),
    ] {
        assert_eq!(error_code(&put(name, &given)), "InvalidFederatedIdentityCredential", "{name}");
    }
    let longest = credential(&"x".repeat(600), one);
    assert_eq!(put("longest", &longest).status, StatusCode::CREATED);
    // The seeded one, `first` and `longest` exist: seventeen more fit.
    for n in 0..17 {
        let reply = put(&format!("more-{n}"), &credential(&format!("m{n}"), one));
        assert_eq!(reply.status, StatusCode::CREATED, "{n}");
    }
    assert_eq!(
        error_code(&put("last", &credential("last", one))),
        "FederatedIdentityCredentialsLimitExceeded"
    );
    let listed = reply_json(&visit.get(visit.owner, &base));
    assert_eq!(listed["value"].as_array().unwrap().len(), 20);
    let first = format!("{base}/FIRST");
    assert_eq!(reply_json(&visit.get(visit.owner, &first))["name"], "first");
    assert_eq!(visit.send_request(visit.owner, "DELETE", &first, "").status, StatusCode::OK);
    assert_eq!(error_code(&visit.get(visit.owner, &first)), "ResourceNotFound");
}

#[test]
fn overlapping_writes_of_federated_credentials_of_one_identity_are_rejected() {
    let visit = ArmFixture::new();
    let url = |identity: &str, name: &str| {
        format!(
            "https://management.azure.com{GROUP}/platform/providers/Microsoft.ManagedIdentity/userAssignedIdentities/{identity}/federatedIdentityCredentials/{name}?api-version=2024-11-30"
        )
    };
    let other = format!(
        "{GROUP}/platform/providers/Microsoft.ManagedIdentity/userAssignedIdentities/other"
    );
    visit.send_request(visit.owner, "PUT", &other, r#"{"location":"eastus"}"#);
    let audience = "https://management.azure.com/";
    let bearer = format!("Bearer {}", issue_access_token_for(&visit.probe, visit.owner, audience));
    let begin = |method: Method, identity: &str, name: &str| {
        let body = format!(
            r#"{{"properties":{{"issuer":"https://i.test","subject":"{name}","audiences":["a"]}}}}"#
        );
        let headers = [("authorization", bearer.as_str())];
        let url = url(identity, name);
        let request = visit.probe.build_request(Ingress::Tunnel, &method, &url, &headers, &body);
        visit.probe.engine.handle_request(&request, Ingress::Tunnel)
    };
    // The reply to the first write has not been sent yet.
    let first = begin(Method::PUT, "test-workload", "one");
    assert_eq!(first.reply.status, StatusCode::CREATED);
    for (method, identity) in [
        (Method::PUT, "test-workload"),
        (Method::PUT, "TEST-workload"),
        (Method::DELETE, "test-workload"),
    ] {
        let overlapping = begin(method, identity, "two");
        assert_eq!(
            error_code(&overlapping.reply),
            "ConcurrentFederatedIdentityCredentialsWritesForSingleManagedIdentity"
        );
        assert_eq!(overlapping.reply.status, StatusCode::CONFLICT);
    }
    assert_eq!(begin(Method::PUT, "other", "two").reply.status, StatusCode::CREATED);
    assert_eq!(begin(Method::GET, "test-workload", "one").reply.status, StatusCode::OK);
    drop(first);
    assert_eq!(begin(Method::PUT, "test-workload", "two").reply.status, StatusCode::CREATED);
    assert_eq!(begin(Method::DELETE, "test-workload", "two").reply.status, StatusCode::OK);
}

const NETWORK_ROLE: &str = "be7a6435-15ae-4171-8f30-4a343eff9e8f";

fn role_assignment_body(role: &str, principal: &str, extra: &str) -> String {
    format!(
        r#"{{"properties":{{"roleDefinitionId":"/subscriptions/sub/providers/Microsoft.Authorization/roleDefinitions/{role}","principalId":"{principal}"{extra}}}}}"#
    )
}

#[test]
fn role_assignments_are_written_once_and_take_effect_at_once() {
    let visit = ArmFixture::new();
    let disk = visit.client(Component::Disk);
    let object = visit
        .probe
        .engine
        .state()
        .azure
        .registry
        .component_identity(Component::Disk)
        .unwrap()
        .object_id
        .to_string();
    let vnet = format!("{GROUP}/demo-vnet-abcde/providers/Microsoft.Network/virtualNetworks/vnet");
    let base = format!("{GROUP}/demo-vnet-abcde/providers/Microsoft.Authorization/roleAssignments");
    let (one, two) =
        ("00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002");
    let put = |who, name: &str, given: &str| {
        visit.send_request(who, "PUT", &format!("{base}/{name}"), given)
    };
    assert_eq!(visit.get(disk, &vnet).status, StatusCode::FORBIDDEN);
    let given = role_assignment_body(NETWORK_ROLE, &object, "");
    assert_eq!(error_code(&put(disk, one, &given)), "AuthorizationFailed");
    assert_eq!(put(visit.owner, one, &given).status, StatusCode::CREATED);
    assert_eq!(visit.get(disk, &vnet).status, StatusCode::OK);
    assert_eq!(put(visit.owner, one, &given).status, StatusCode::OK);
    assert_eq!(error_code(&put(visit.owner, two, &given)), "RoleAssignmentExists");
    let other = role_assignment_body("0336e1d3-7a87-462b-b6db-342b63f7802c", &object, "");
    assert_eq!(error_code(&put(visit.owner, one, &other)), "RoleAssignmentUpdateNotPermitted");
    let listed =
        reply_json(&visit.get(visit.owner, &format!("{base}?$filter=principalId eq '{object}'")));
    assert_eq!(listed["value"].as_array().unwrap().len(), 1);
    let path = format!("{base}/{one}");
    let found = reply_json(&visit.get(visit.owner, &path));
    assert_eq!(found["properties"]["scope"], format!("{GROUP}/demo-vnet-abcde"));
    assert_eq!(visit.send_request(visit.owner, "DELETE", &path, "").status, StatusCode::OK);
    assert_eq!(visit.get(disk, &vnet).status, StatusCode::FORBIDDEN);
    assert_eq!(visit.send_request(visit.owner, "DELETE", &path, "").status, StatusCode::NO_CONTENT);
    assert_eq!(error_code(&visit.get(visit.owner, &path)), "RoleAssignmentNotFound");
}

#[test]
fn each_invalid_role_assignment_has_its_error_code() {
    let visit = ArmFixture::new();
    let unknown_principal = "00000000-0000-4000-8000-0000000000ff";
    let name = "00000000-0000-4000-8000-000000000003";
    let put = |name: &str, given: &str| {
        let base = format!("{GROUP}/demo-abcde/providers/Microsoft.Authorization/roleAssignments");
        visit.send_request(visit.owner, "PUT", &format!("{base}/{name}"), given)
    };
    assert_eq!(
        error_code(&put(name, &role_assignment_body(NETWORK_ROLE, unknown_principal, ""))),
        "PrincipalNotFound"
    );
    assert_eq!(
        error_code(&put(name, &role_assignment_body(NETWORK_ROLE, "x", ""))),
        "InvalidPrincipalId"
    );
    assert_eq!(
        error_code(&put(
            "x",
            &role_assignment_body(NETWORK_ROLE, unknown_principal, r#","principalType":"User""#)
        )),
        "InvalidRoleAssignmentId"
    );
    let named = "Azure Red Hat OpenShift NodePool Management Role";
    assert_eq!(
        error_code(&put(name, &role_assignment_body(named, unknown_principal, ""))),
        "InvalidRoleDefinitionId"
    );
    assert_eq!(
        error_code(&put(name, &role_assignment_body(unknown_principal, unknown_principal, ""))),
        "RoleDefinitionDoesNotExist"
    );
    let conditional = role_assignment_body(
        NETWORK_ROLE,
        unknown_principal,
        r#","principalType":"User","conditionVersion":"2.0","condition":"@Environment[x] StringEquals 'y'""#,
    );
    assert_eq!(put(name, &conditional).status, StatusCode::NOT_IMPLEMENTED);
    let fresh = role_assignment_body(
        NETWORK_ROLE,
        unknown_principal,
        r#","principalType":"ServicePrincipal""#,
    );
    assert_eq!(put(name, &fresh).status, StatusCode::CREATED);
}

#[test]
fn at_scope_filter_excludes_assignments_below_the_scope() {
    let visit = ArmFixture::new();
    let count = |scope: &str, filter: &str| {
        let path = format!("{scope}/providers/Microsoft.Authorization/roleAssignments{filter}");
        reply_json(&visit.get(visit.owner, &path))["value"].as_array().unwrap().len()
    };
    // The administrator, the application with a client secret, and the identity of the machine.
    assert_eq!(count("/subscriptions/sub", "?$filter=atScope()"), 3);
    assert!(count("/subscriptions/sub", "") > 20);
    let subnet = format!(
        "{GROUP}/demo-vnet-abcde/providers/Microsoft.Network/virtualNetworks/vnet/subnets/default"
    );
    assert_eq!(count(&subnet, "?$filter=atScope()"), 9);
}

#[test]
fn roles_are_found_by_name_and_by_id() {
    let visit = ArmFixture::new();
    let base = "/subscriptions/sub/providers/Microsoft.Authorization/roleDefinitions";
    let found = reply_json(
        &visit.get(visit.owner, &format!("{base}?$filter=roleName eq 'Key Vault Administrator'")),
    );
    assert_eq!(found["value"].as_array().unwrap().len(), 1);
    let id = found["value"][0]["id"].as_str().unwrap();
    assert_eq!(id, format!("{base}/00482a5a-887f-4fb3-b363-3b7fe8e74483"));
    let role = reply_json(&visit.get(visit.owner, id));
    assert_eq!(
        role["properties"]["permissions"][0]["dataActions"][0],
        "Microsoft.KeyVault/vaults/*"
    );
}

#[test]
fn a_vault_is_made_changed_deleted_recovered_and_purged() {
    let visit = ArmFixture::new();
    let path = format!("{GROUP}/platform/providers/Microsoft.KeyVault/vaults/Fresh-kv");
    let tenant = "11111111-1111-4111-8111-111111111111";
    let vault = |mode: &str| {
        format!(
            r#"{{"location":"eastus","properties":{{"tenantId":"{tenant}","sku":{{"family":"A","name":"standard"}},"accessPolicies":[]{mode}}}}}"#
        )
    };
    let ask = |method: &str, path: &str, given: &str| {
        visit.send_request(visit.owner, method, path, given)
    };
    assert_eq!(error_code(&ask("GET", &path, "")), "ResourceNotFound");
    let created = ask("PUT", &path, &vault(""));
    assert_eq!(created.status, StatusCode::CREATED);
    assert_eq!(reply_json(&created)["properties"]["vaultUri"], "https://fresh-kv.vault.azure.net/");
    let rbac = |visit: &ArmFixture| {
        let state = visit.probe.engine.state();
        state
            .azure
            .vaults
            .vault_at_host("fresh-kv.vault.azure.net")
            .map(|vault| vault.settings.rbac)
    };
    assert_eq!(rbac(&visit), Some(false));
    ask("PATCH", &path, r#"{"properties":{"enableRbacAuthorization":true}}"#);
    assert_eq!(rbac(&visit), Some(true));
    let elsewhere = path.replace("platform", "dns");
    assert_eq!(error_code(&ask("PUT", &elsewhere, &vault(""))), "VaultAlreadyExists");
    assert_eq!(ask("DELETE", &path, "").status, StatusCode::OK);
    assert_eq!(rbac(&visit), None);
    assert_eq!(error_code(&ask("PUT", &path, &vault(""))), "ConflictError");
    let recovered = ask("PUT", &path, &vault(r#","createMode":"recover""#));
    assert_eq!(recovered.status, StatusCode::OK);
    assert_eq!(rbac(&visit), Some(true));
    ask("DELETE", &path, "");
    let deleted =
        "/subscriptions/sub/providers/Microsoft.KeyVault/locations/eastus/deletedVaults/fresh-kv";
    assert_eq!(ask("GET", deleted, "").status, StatusCode::OK);
    assert_eq!(ask("POST", &format!("{deleted}/purge"), "").status, StatusCode::OK);
    assert_eq!(error_code(&ask("GET", deleted, "")), "DeletedVaultNotFound");
    assert_eq!(ask("PUT", &path, &vault("")).status, StatusCode::CREATED);
    for wrong in [r#"{"location":"eastus"}"#, &vault(r#","softDeleteRetentionInDays":3"#)] {
        assert_eq!(error_code(&ask("PUT", &path.replace("Fresh", "other"), wrong)), "BadRequest");
    }
}

#[test]
fn clients_discover_endpoints_tenants_and_subscriptions() {
    let visit = ArmFixture::new();
    let metadata = |version: &str| {
        let url = format!("{ARM}/metadata/endpoints?api-version={version}");
        reply_json(&visit.probe.get(Ingress::Tunnel, &url, &[]))
    };
    assert_eq!(metadata("2022-09-01")["suffixes"]["keyVaultDns"], "vault.azure.net");
    assert_eq!(metadata("2022-09-01")["suffixes"]["storage"], "core.windows.net");
    assert_eq!(metadata("2019-05-01")[0]["name"], "AzureCloud");
    assert_eq!(
        reply_json(&visit.get(visit.owner, "/tenants"))["value"][0]["tenantId"],
        "11111111-1111-4111-8111-111111111111"
    );
    for who in [visit.owner, visit.reader, visit.client(Component::Kms)] {
        let found = reply_json(&visit.get(who, "/subscriptions"));
        assert_eq!(found["value"][0]["subscriptionId"], "sub");
    }
    assert_eq!(visit.get(visit.owner, "/subscriptions/sub").status, StatusCode::OK);
    assert_eq!(visit.get(visit.owner, "/subscriptions/sub/locations").status, StatusCode::OK);
}

#[test]
fn removing_one_components_role_leaves_others_authorized() {
    let visit = ArmFixture::new();
    {
        let state = &mut *visit.probe.engine.state();
        let planned_fault = FaultPlan { fault: IdentityFault::ArmRole, component: Component::Disk };
        planned_fault.apply(&mut state.azure, &mut state.ids, SEED_TIME).unwrap();
    }
    for component in Component::ALL {
        let [granted, _] = granted_and_denied_paths(component);
        let status = visit.get(visit.client(component), &granted).status;
        let expected =
            if component == Component::Disk { StatusCode::FORBIDDEN } else { StatusCode::OK };
        assert_eq!(status, expected, "{component}");
    }
}

#[test]
fn unimplemented_operation_returns_501() {
    let visit = ArmFixture::new();
    let path = format!(
        "{GROUP}/demo-vnet-abcde/providers/Microsoft.Network/virtualNetworks/vnet/unknownAction"
    );
    let reply = visit.send_request(visit.owner, "POST", &path, "{}");
    assert_eq!(reply.status, StatusCode::NOT_IMPLEMENTED);
}

#[test]
fn the_control_api_explains_a_decision() {
    let visit = ArmFixture::new();
    let disk = visit.client(Component::Disk);
    let ask = |query: &str| {
        let url = format!("http://127.0.0.1/lanyard/v1/explain?{query}");
        visit.probe.get(Ingress::Port, &url, &[("x-lanyard-control", "1")])
    };
    let read = |kind: &str, group: &str| {
        format!("principal={disk}&action=Microsoft.{kind}/read&scope={GROUP}/{group}")
    };
    let granted = reply_json(&ask(&read("Compute/disks", "demo-abcde")));
    assert_eq!(granted["granted"], true);
    assert_eq!(granted["role"], "Azure Red Hat OpenShift Disk Storage Operator");
    let elsewhere = reply_json(&ask(&read("Compute/disks", "dns")));
    assert_eq!(elsewhere["granted"], false);
    assert!(elsewhere["reason"].as_str().unwrap().contains("is assigned at"), "{elsewhere}");
    for query in ["principal=x&action=a&scope=/", "action=a&scope=/", "principal=x"] {
        assert_eq!(ask(query).status, StatusCode::BAD_REQUEST, "{query}");
    }
    let both = format!("{}&dataAction=a", read("Compute/disks", "dns"));
    assert_eq!(error_code(&ask(&both)), "QueryInvalid");
}

#[test]
fn token_from_another_tenant_is_rejected() {
    let mut two_tenants = nine_identity_plan();
    two_tenants.identities.clear();
    two_tenants.kms_key = None;
    let (azure, _) = seed_azure(&two_tenants);
    let reader = two_tenants.vault_reader_client_id;
    let visit = ArmFixture { probe: EngineFixture::new(azure), owner: reader, reader };
    let reply = visit.get(reader, GROUP);
    assert_eq!(reply.status, StatusCode::UNAUTHORIZED);
    assert_eq!(error_code(&reply), "InvalidAuthenticationTokenTenant");
    let challenge = reply.header("www-authenticate").unwrap();
    assert!(challenge.contains("/11111111-1111-4111-8111-111111111111\""), "{challenge}");
}

fn put(fixture: &ArmFixture, path: &str, body: &Value) -> (StatusCode, Value) {
    let reply = fixture.send_request(fixture.owner, "PUT", path, &body.to_string());
    (reply.status, reply_json(&reply))
}

fn put_error(fixture: &ArmFixture, path: &str, body: &Value) -> String {
    error_code(&fixture.send_request(fixture.owner, "PUT", path, &body.to_string()))
}

fn network_path(rest: &str) -> String {
    format!("{GROUP}/platform/providers/Microsoft.Network/{rest}")
}

#[test]
fn virtual_network_write_replaces_its_subnets() {
    let fixture = ArmFixture::new();
    let path = network_path("virtualNetworks/net");
    let network = |subnets: Value| {
        json!({
            "location": "West Europe",
            "properties": {
                "addressSpace": { "addressPrefixes": ["10.0.0.0/16"] },
                "subnets": subnets,
            },
        })
    };
    let subnet = |name: &str, prefix: &str| json!({ "name": name, "properties": { "addressPrefix": prefix } });
    let both = network(json!([subnet("a", "10.0.0.0/24"), subnet("b", "10.0.1.0/24")]));
    let (status, created) = put(&fixture, &path, &both);
    assert_eq!(status, StatusCode::CREATED, "{created}");
    assert_eq!(created["location"], "westeurope");
    assert_eq!(created["properties"]["provisioningState"], "Succeeded");
    assert_eq!(created["properties"]["subnets"][1]["id"], format!("{path}/subnets/b"));
    let (_, one) = put(&fixture, &path, &network(json!([subnet("b", "10.0.1.0/24")])));
    assert_eq!(one["properties"]["subnets"].as_array().unwrap().len(), 1);
    let gone = fixture.get(fixture.owner, &format!("{path}/subnets/a"));
    assert_eq!(gone.status, StatusCode::NOT_FOUND);
    let child = format!("{path}/subnets/c");
    let properties = json!({ "properties": { "addressPrefix": "10.0.2.0/24" } });
    assert_eq!(put(&fixture, &child, &properties).0, StatusCode::CREATED);
    for (prefix, code) in [
        ("10.0.1.0/25", "NetcfgSubnetRangesOverlap"),
        ("10.1.0.0/24", "NetcfgSubnetRangeOutsideVnet"),
        ("10.0.3.1/24", "InvalidCIDRNotation"),
    ] {
        let properties = json!({ "properties": { "addressPrefix": prefix } });
        assert_eq!(put_error(&fixture, &format!("{path}/subnets/d"), &properties), code);
    }
}

#[test]
fn private_endpoint_is_deleted_with_its_network_interface() {
    let fixture = ArmFixture::new();
    let network = network_path("virtualNetworks/net");
    let subnet = json!({ "name": "a", "properties": { "addressPrefix": "10.0.0.0/24" } });
    let space = json!({ "addressPrefixes": ["10.0.0.0/16"] });
    let properties = json!({ "addressSpace": space, "subnets": [subnet] });
    put(&fixture, &network, &json!({ "location": "westeurope", "properties": properties }));
    let endpoint = network_path("privateEndpoints/endpoint");
    let vault = format!("{GROUP}/platform/providers/Microsoft.KeyVault/vaults/demo-kms");
    let body = json!({
        "location": "westeurope",
        "properties": {
            "subnet": { "id": format!("{network}/subnets/a") },
            "privateLinkServiceConnections": [{
                "name": "vault",
                "properties": { "privateLinkServiceId": vault, "groupIds": ["vault"] },
            }],
        },
    });
    let (status, created) = put(&fixture, &endpoint, &body);
    assert_eq!(status, StatusCode::CREATED, "{created}");
    let interface = created["properties"]["networkInterfaces"][0]["id"].as_str().unwrap();
    let delete = |path: &str| fixture.send_request(fixture.owner, "DELETE", path, "");
    assert_eq!(error_code(&delete(interface)), "NicInUseWithPrivateEndpoint");
    assert_eq!(error_code(&delete(&network)), "InUseSubnetCannotBeDeleted");
    assert_eq!(delete(&endpoint).status, StatusCode::OK);
    assert_eq!(fixture.get(fixture.owner, interface).status, StatusCode::NOT_FOUND);
    assert_eq!(delete(&network).status, StatusCode::OK);
}

#[test]
fn writes_check_region_name_parent_version_and_preconditions() {
    let fixture = ArmFixture::new();
    let path = network_path("virtualNetworks/net");
    let space = json!({ "addressSpace": { "addressPrefixes": ["10.0.0.0/16"] } });
    let at = |location: &str| json!({ "location": location, "properties": space });
    assert_eq!(put_error(&fixture, &path, &at("nowhere")), "LocationNotAvailableForResourceType");
    assert_eq!(put_error(&fixture, &path, &json!({ "properties": space })), "LocationRequired");
    let invalid = network_path("virtualNetworks/-net");
    assert_eq!(put_error(&fixture, &invalid, &at("eastus")), "InvalidResourceName");
    let orphan = network_path("virtualNetworks/none/subnets/a");
    assert_eq!(put_error(&fixture, &orphan, &json!({})), "ParentResourceNotFound");
    assert_eq!(put(&fixture, &path, &at("eastus")).0, StatusCode::CREATED);
    assert_eq!(put_error(&fixture, &path, &at("westus")), "InvalidResourceLocation");
    let bearer =
        format!("Bearer {}", issue_access_token_for(&fixture.probe, fixture.owner, AUDIENCE));
    let send = |version: &str, condition: (&str, &str)| {
        let url = format!("{ARM}{path}?api-version={version}");
        let headers = [("authorization", bearer.as_str()), condition];
        let body = at("eastus").to_string();
        fixture.probe.send_request(Ingress::Tunnel, &Method::PUT, &url, &headers, &body)
    };
    let code = |version, condition| error_code(&send(version, condition));
    assert_eq!(code("2010-01-01", ("x-a", "b")), "NoRegisteredProviderFound");
    assert_eq!(code("2099-01-01", ("x-a", "b")), "NoRegisteredProviderFound");
    assert_eq!(code("2024-01-01", ("if-none-match", "*")), "PreconditionFailed");
    assert_eq!(code("2024-01-01", ("if-match", "\"other\"")), "PreconditionFailed");
    let etag = reply_json(&fixture.get(fixture.owner, &path))["etag"].as_str().unwrap().to_owned();
    assert_eq!(send("2024-01-01", ("if-match", &etag)).status, StatusCode::OK);
}

#[test]
fn lock_forbids_writes_and_deletions_at_and_below_its_scope() {
    let fixture = ArmFixture::new();
    let group = format!("{GROUP}/platform");
    let identity =
        format!("{group}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/Mine");
    let location = json!({ "location": "eastus" });
    assert_eq!(put(&fixture, &identity, &location).0, StatusCode::CREATED);
    let lock = format!("{identity}/providers/Microsoft.Authorization/locks/keep");
    let level = |level: &str| json!({ "properties": { "level": level } });
    assert_eq!(put_error(&fixture, &lock, &level("other")), "InvalidLockLevel");
    assert_eq!(put(&fixture, &lock, &level("CanNotDelete")).0, StatusCode::CREATED);
    for path in [&identity, &group] {
        let reply = fixture.send_request(fixture.owner, "DELETE", path, "");
        assert_eq!(error_code(&reply), "ScopeLocked", "{path}");
    }
    let count = |list: &str| {
        let items = reply_json(&fixture.get(fixture.owner, list));
        items["value"].as_array().unwrap().iter().filter(|item| item["name"] == "keep").count()
    };
    let locks = "/subscriptions/sub/providers/Microsoft.Authorization/locks";
    assert_eq!((count(locks), count(&format!("{group}/resources"))), (1, 0));
    assert_eq!(put(&fixture, &identity, &location).0, StatusCode::OK);
    assert_eq!(put(&fixture, &lock, &level("ReadOnly")).0, StatusCode::OK);
    assert_eq!(put_error(&fixture, &identity, &location), "ScopeLocked");
    assert_eq!(fixture.send_request(fixture.owner, "DELETE", &lock, "").status, StatusCode::OK);
    let reply = fixture.send_request(fixture.owner, "DELETE", &identity, "");
    assert_eq!(reply.status, StatusCode::OK);
}

#[test]
fn delayed_operation_completes_with_its_last_poll() {
    let fixture = ArmFixture::new();
    let settings = json!({
        "longRunning": [{ "resourceType": "Microsoft.Network", "polls": 2 }],
    });
    *fixture.probe.engine.state().azure.resources.settings =
        serde_json::from_value(settings).unwrap();
    let path = network_path("virtualNetworks/net");
    let body = json!({
        "location": "eastus",
        "properties": { "addressSpace": { "addressPrefixes": ["10.0.0.0/16"] } },
    });
    let reply = fixture.send_request(fixture.owner, "PUT", &path, &body.to_string());
    assert_eq!(reply_json(&reply)["properties"]["provisioningState"], "Creating");
    assert_eq!(reply.header("retry-after-ms"), Some("50"));
    let status_url = reply.header("azure-asyncoperation").unwrap().to_owned();
    let status_path = status_url.strip_prefix(ARM).unwrap();
    let status_path = status_path.split('?').next().unwrap();
    let statuses: Vec<_> = (0..3)
        .map(|_| reply_json(&fixture.get(fixture.owner, status_path))["status"].clone())
        .collect();
    assert_eq!(statuses, ["InProgress", "Succeeded", "Succeeded"]);
    let network = reply_json(&fixture.get(fixture.owner, &path));
    assert_eq!(network["properties"]["provisioningState"], "Succeeded");
    let deletion = fixture.send_request(fixture.owner, "DELETE", &path, "");
    assert_eq!(deletion.status, StatusCode::ACCEPTED);
    let location = deletion.header("location").unwrap().to_owned();
    let location = location.strip_prefix(ARM).unwrap().split('?').next().unwrap();
    assert_eq!(fixture.get(fixture.owner, location).status, StatusCode::ACCEPTED);
    assert_eq!(fixture.get(fixture.owner, location).status, StatusCode::NO_CONTENT);
    assert_eq!(fixture.get(fixture.owner, &path).status, StatusCode::NOT_FOUND);
}

#[test]
fn write_of_an_unregistered_provider_is_rejected_until_it_is_registered() {
    let fixture = ArmFixture::new();
    let provider = "/subscriptions/sub/providers/Microsoft.Network";
    let post = |action: &str| {
        fixture.send_request(fixture.owner, "POST", &format!("{provider}/{action}"), "")
    };
    assert_eq!(reply_json(&post("unregister"))["registrationState"], "NotRegistered");
    let path = network_path("virtualNetworks/net");
    let body = json!({
        "location": "eastus",
        "properties": { "addressSpace": { "addressPrefixes": ["10.0.0.0/16"] } },
    });
    assert_eq!(put_error(&fixture, &path, &body), "MissingSubscriptionRegistration");
    assert_eq!(reply_json(&post("register"))["registrationState"], "Registered");
    assert_eq!(put(&fixture, &path, &body).0, StatusCode::CREATED);
}

#[test]
fn tags_are_merged_replaced_and_deleted_at_any_scope() {
    let fixture = ArmFixture::new();
    let path = format!("{GROUP}/platform/providers/Microsoft.Resources/tags/default");
    let tags = |tags: Value| json!({ "properties": { "tags": tags } });
    let (_, stored) = put(&fixture, &path, &tags(json!({ "a": "1", "b": "2" })));
    assert_eq!(stored["properties"]["tags"], json!({ "a": "1", "b": "2" }));
    let patch = |operation: &str, given: Value| {
        let mut body = tags(given);
        body["operation"] = json!(operation);
        let reply = fixture.send_request(fixture.owner, "PATCH", &path, &body.to_string());
        reply_json(&reply)["properties"]["tags"].clone()
    };
    assert_eq!(patch("Merge", json!({ "B": "3" })), json!({ "a": "1", "B": "3" }));
    assert_eq!(patch("Delete", json!({ "a": "1", "B": "other" })), json!({ "B": "3" }));
    assert_eq!(patch("Replace", json!({ "c": "4" })), json!({ "c": "4" }));
    let group = reply_json(&fixture.get(fixture.owner, &format!("{GROUP}/platform")));
    assert_eq!(group["tags"], json!({ "c": "4" }));
}

#[test]
fn patch_of_the_tags_keeps_child_resources() {
    let fixture = ArmFixture::new();
    let bodies = [
        (
            "virtualNetworks/net",
            "subnets",
            json!({
                "addressSpace": { "addressPrefixes": ["10.0.0.0/16"] },
                "subnets": [{ "name": "a", "properties": { "addressPrefix": "10.0.0.0/24" } }],
            }),
        ),
        (
            "routeTables/table",
            "routes",
            json!({
                "routes": [{
                    "name": "a",
                    "properties": { "addressPrefix": "10.1.0.0/16", "nextHopType": "None" },
                }],
            }),
        ),
    ];
    for (resource, collection, properties) in bodies {
        let path = network_path(resource);
        put(&fixture, &path, &json!({ "location": "eastus", "properties": properties }));
        let patch = r#"{"tags":{"a":"b"}}"#;
        let reply = fixture.send_request(fixture.owner, "PATCH", &path, patch);
        assert_eq!(reply_json(&reply)["tags"]["a"], "b");
        let child = fixture.get(fixture.owner, &format!("{path}/{collection}/a"));
        assert_eq!(child.status, StatusCode::OK, "{resource}");
    }
}

/// The specification of managed clusters lists only 202 and 204 for deletions, and SDKs reject 200.
#[test]
fn completed_deletion_of_a_cluster_returns_204() {
    let fixture = ArmFixture::new();
    let path = format!("{GROUP}/platform/providers/Microsoft.ContainerService/managedClusters/aks");
    let pool = |name: &str, mode: &str| json!({ "name": name, "count": 1, "mode": mode });
    let properties = json!({
        "dnsPrefix": "aks",
        "agentPoolProfiles": [pool("system", "System"), pool("user", "User")],
    });
    let body = json!({
        "location": "eastus",
        "identity": { "type": "SystemAssigned" },
        "properties": properties,
    });
    assert_eq!(put(&fixture, &path, &body).0, StatusCode::CREATED);
    for path in [format!("{path}/agentPools/user"), path] {
        let deletion = fixture.send_request(fixture.owner, "DELETE", &path, "");
        assert_eq!(deletion.status, StatusCode::NO_CONTENT);
        assert_eq!(fixture.get(fixture.owner, &path).status, StatusCode::NOT_FOUND);
    }
}

#[test]
fn missing_resource_has_the_error_of_its_provider() {
    let fixture = ArmFixture::new();
    let network = network_path("virtualNetworks/net");
    let body = json!({
        "location": "eastus",
        "properties": { "addressSpace": { "addressPrefixes": ["10.0.0.0/16"] } },
    });
    put(&fixture, &network, &body);
    let zone = network_path("dnsZones/example.org");
    put(&fixture, &zone, &json!({ "location": "global" }));
    let read = |path: &str| reply_json(&fixture.get(fixture.owner, path));
    let subnet = read(&format!("{network}/subnets/missing"));
    assert_eq!(subnet["error"]["code"], "NotFound");
    // The providers of DNS return no envelope.
    let record = read(&format!("{zone}/TXT/missing"));
    assert_eq!(record["code"], "NotFound");
    assert!(record["message"].as_str().unwrap().contains("resource record 'missing'"));
    let zone = read(&network_path("dnsZones/missing.example.org"));
    assert_eq!(zone["error"]["code"], "ResourceNotFound");
}
