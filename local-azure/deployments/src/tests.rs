use jiff::Timestamp;
use lanyard_emulator::testing::arm_fixture::ArmFixture;
use lanyard_emulator::testing::reply_json;
use lanyard_emulator_state::resources::deployment_store::{DeploymentOutcome, DeploymentStore};
use lanyard_vocabulary::EntraClientId;

use super::*;

const GROUP: &str = "/subscriptions/sub/resourceGroups/platform";
const DEPLOYMENT: &str =
    "/subscriptions/sub/resourceGroups/platform/providers/Microsoft.Resources/deployments/app";
const SUBSCRIPTION_DEPLOYMENT: &str =
    "/subscriptions/sub/providers/Microsoft.Resources/deployments/app";
const GROUP_SCHEMA: &str =
    "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#";
const SUBSCRIPTION_SCHEMA: &str =
    "https://schema.management.azure.com/schemas/2018-05-01/subscriptionDeploymentTemplate.json#";

/// The body of a deployment of a template with these elements.
fn deployment(schema: &str, elements: &Value, parameters: &Value) -> Value {
    let mut template = json!({ "$schema": schema, "contentVersion": "1.0.0.0", "resources": [] });
    template.as_object_mut().unwrap().extend(elements.as_object().unwrap().clone());
    json!({
        "properties": { "mode": "Incremental", "template": template, "parameters": parameters },
    })
}

fn group_deployment(elements: &Value) -> Value {
    deployment(GROUP_SCHEMA, elements, &json!({}))
}

/// A resource that is stored as given.
fn cache(name: &str, members: &Value) -> Value {
    let mut resource = json!({
        "type": "Microsoft.Cache/redis",
        "apiVersion": "2024-11-01",
        "name": name,
        "location": "[resourceGroup().location]",
        "properties": {},
    });
    resource.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    resource
}

fn send(fixture: &ArmFixture, method: &str, path: &str, body: &Value) -> (StatusCode, Value) {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let reply = fixture.send_request(fixture.owner, method, path, &text);
    let json = if reply.body.is_empty() { Value::Null } else { reply_json(&reply) };
    (reply.status, json)
}

fn get(fixture: &ArmFixture, path: &str) -> Value {
    send(fixture, "GET", path, &Value::Null).1
}

/// Deploys to the resource group `platform` and returns the deployment.
fn deploy(fixture: &ArmFixture, body: &Value) -> Value {
    let (status, accepted) = send(fixture, "PUT", DEPLOYMENT, body);
    assert_eq!(status, StatusCode::CREATED, "{accepted}");
    assert_eq!(accepted["properties"]["provisioningState"], "Accepted");
    get(fixture, DEPLOYMENT)
}

/// The code and the position of the error of a rejected deployment.
fn rejection(fixture: &ArmFixture, body: &Value) -> (StatusCode, String, String) {
    let (status, reply) = send(fixture, "PUT", DEPLOYMENT, body);
    let error = &reply["error"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    assert!(get(fixture, DEPLOYMENT)["error"]["code"] == "DeploymentNotFound");
    (status, text(&error["code"]), text(&error["additionalInfo"][0]["info"]["path"]))
}

/// A network, an identity with a federated credential, and a role at a vault.
const WORKLOAD_IDENTITY_TEMPLATE: &str = include_str!("tests/workload-identity.json");

fn workload_identity_deployment() -> Value {
    let template: Value = serde_json::from_str(WORKLOAD_IDENTITY_TEMPLATE).unwrap();
    let parameters = json!({
        "name": { "value": "demoapp" },
        "assignment": { "value": "0d4a8c16-1111-4222-8333-944444444444" },
    });
    deployment(GROUP_SCHEMA, &template, &parameters)
}

#[test]
fn template_with_network_identity_role_and_vault_is_deployed() {
    let fixture = ArmFixture::new();
    let deployed = deploy(&fixture, &workload_identity_deployment());
    let properties = &deployed["properties"];
    assert_eq!(properties["provisioningState"], "Succeeded", "{properties:#}");
    assert_eq!(deployed["id"], DEPLOYMENT);
    assert_eq!(properties["parameters"]["name"], json!({ "type": "String", "value": "demoapp" }));
    assert_eq!(properties["parameters"]["password"], json!({ "type": "SecureString" }));
    assert_eq!(properties["outputs"]["password"], json!({ "type": "SecureString" }));
    assert!(!deployed.to_string().contains("hunter2"));
    assert_eq!(properties["outputResources"].as_array().unwrap().len(), 7);
    let identity = get(
        &fixture,
        &format!(
            "{GROUP}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/demoapp-identity"
        ),
    );
    assert_eq!(properties["outputs"]["clientId"]["value"], identity["properties"]["clientId"]);
    let vault = format!("{GROUP}/providers/Microsoft.KeyVault/vaults/demoapp-vault");
    assert_eq!(
        properties["outputs"]["vaultUri"]["value"],
        get(&fixture, &vault)["properties"]["vaultUri"]
    );
    let assignment = get(
        &fixture,
        &format!(
            "{vault}/providers/Microsoft.Authorization/roleAssignments/0d4a8c16-1111-4222-8333-944444444444"
        ),
    );
    assert_eq!(
        assignment["properties"]["principalId"], identity["properties"]["principalId"],
        "{assignment}"
    );
    let network =
        get(&fixture, &format!("{GROUP}/providers/Microsoft.Network/virtualNetworks/demoapp-vnet"));
    let subnet = &network["properties"]["subnets"][0];
    assert_eq!(subnet["name"], "default");
    assert_eq!(
        subnet["properties"]["networkSecurityGroup"]["id"],
        format!("{GROUP}/providers/Microsoft.Network/networkSecurityGroups/demoapp-nsg")
    );
    assert_eq!(
        properties["dependencies"][0]["dependsOn"].as_array().unwrap().len(),
        2,
        "{properties:#}"
    );
    let repeated = send(&fixture, "PUT", DEPLOYMENT, &workload_identity_deployment());
    assert_eq!(repeated.0, StatusCode::OK, "a deployment can be repeated");
    assert_eq!(get(&fixture, DEPLOYMENT)["properties"]["provisioningState"], "Succeeded");
}

#[test]
fn operations_show_each_written_resource() {
    let fixture = ArmFixture::new();
    deploy(&fixture, &workload_identity_deployment());
    for path in [format!("{DEPLOYMENT}/operations"), format!("{GROUP}/deployments/app/operations")]
    {
        let operations = get(&fixture, &path);
        let operations = operations["value"].as_array().unwrap();
        assert_eq!(operations.len(), 8);
        let target = &operations[0]["properties"]["targetResource"];
        assert_eq!(target["resourceType"], "Microsoft.KeyVault/vaults", "{operations:?}");
        assert_eq!(target["resourceName"], "demoapp-vault");
        assert_eq!(operations[0]["properties"]["statusCode"], "Created");
        let last = &operations[7]["properties"];
        assert_eq!(last["provisioningOperation"], "EvaluateDeploymentOutput");
        let one = format!("{path}/{}", operations[0]["operationId"].as_str().unwrap());
        assert_eq!(get(&fixture, &one), operations[0]);
        let unknown = get(&fixture, &format!("{path}/0000000000000000"));
        assert_eq!(unknown["error"]["code"], "DeploymentOperationNotFound");
    }
}

#[test]
fn failed_resource_fails_the_deployment_and_skips_its_dependents() {
    let fixture = ArmFixture::new();
    let body = group_deployment(&json!({
        "resources": [
            cache("dependent", &json!({ "dependsOn": ["net"] })),
            cache("independent", &json!({})),
            {
                "type": "Microsoft.Network/virtualNetworks",
                "apiVersion": "2024-05-01",
                "name": "net",
                "location": "nowhere",
                "dependsOn": ["independent"],
            },
            cache("late", &json!({ "dependsOn": ["independent"] })),
        ],
    }));
    let reply = fixture.send_request(fixture.owner, "PUT", DEPLOYMENT, &body.to_string());
    assert_eq!(reply.status, StatusCode::CREATED);
    let status_url = reply.header("azure-asyncoperation").unwrap().to_owned();
    let status_path = status_url.strip_prefix("https://management.azure.com").unwrap();
    let status = get(&fixture, status_path.split('?').next().unwrap());
    assert_eq!(status["status"], "Failed");
    let error = &status["error"];
    assert_eq!(error["code"], "DeploymentFailed");
    assert_eq!(error["target"], DEPLOYMENT);
    let details = error["details"].as_array().unwrap();
    assert_eq!(details.len(), 1);
    assert_eq!(details[0]["code"], "LocationNotAvailableForResourceType");
    assert_eq!(
        details[0]["target"],
        format!("{GROUP}/providers/Microsoft.Network/virtualNetworks/net")
    );
    let deployed = get(&fixture, DEPLOYMENT);
    assert_eq!(deployed["properties"]["provisioningState"], "Failed");
    assert_eq!(deployed["properties"]["error"], *error);
    assert!(deployed["properties"].get("outputs").is_none());
    let exists = |name: &str| {
        let path = format!("{GROUP}/providers/Microsoft.Cache/redis/{name}");
        send(&fixture, "GET", &path, &Value::Null).0 == StatusCode::OK
    };
    assert_eq!([exists("independent"), exists("late"), exists("dependent")], [true, true, false]);
    let operations = get(&fixture, &format!("{DEPLOYMENT}/operations"));
    let failed: Vec<_> = operations["value"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|it| it["properties"]["provisioningState"] == "Failed")
        .collect();
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0]["properties"]["statusCode"], "BadRequest");
    assert_eq!(failed[0]["properties"]["statusMessage"]["error"], details[0]);
}

#[test]
fn missing_dependency_fails_as_in_a_parallel_deployment() {
    let fixture = ArmFixture::new();
    let network = json!({
        "type": "Microsoft.Network/virtualNetworks",
        "apiVersion": "2024-05-01",
        "name": "net",
        "location": "eastus",
        "properties": { "addressSpace": { "addressPrefixes": ["10.2.0.0/16"] } },
    });
    let subnet = json!({
        "type": "Microsoft.Network/virtualNetworks/subnets",
        "apiVersion": "2024-05-01",
        "name": "net/default",
        "properties": { "addressPrefix": "10.2.0.0/24" },
    });
    let reader = cache(
        "reader",
        &json!({
            "properties": { "x": "[reference(resourceId('Microsoft.Network/virtualNetworks', 'net')).addressSpace]" },
        }),
    );
    let body = group_deployment(&json!({ "resources": [network, subnet, reader] }));
    let deployed = deploy(&fixture, &body);
    let mut codes: Vec<_> = deployed["properties"]["error"]["details"]
        .as_array()
        .unwrap()
        .iter()
        .map(|detail| detail["code"].as_str().unwrap())
        .collect();
    codes.sort_unstable();
    assert_eq!(codes, ["ParentResourceNotFound", "ResourceNotFound"]);
}

#[test]
fn outputs_that_have_no_value_fail_the_deployment() {
    let fixture = ArmFixture::new();
    let deployed = deploy(
        &fixture,
        &group_deployment(&json!({
            "resources": [cache("one", &json!({}))],
            "outputs": { "x": { "type": "string", "value": "[reference('one').none]" } },
        })),
    );
    let error = &deployed["properties"]["error"];
    assert_eq!(error["code"], "DeploymentOutputEvaluationFailed");
    assert_eq!(error["details"][0]["target"], "x");
}

#[test]
fn invalid_templates_are_rejected_before_anything_is_written() {
    let fixture = ArmFixture::new();
    let resource =
        |members: Value| group_deployment(&json!({ "resources": [cache("a", &members)] }));
    let cases = [
        (
            group_deployment(&json!({ "variables": { "v": "[uniqueString('a')]" } })),
            "InvalidTemplate",
            "properties.template.variables.v",
        ),
        (
            resource(json!({ "dependsOn": ["b"] })),
            "InvalidTemplate",
            "properties.template.resources[0].dependsOn[0]",
        ),
        (resource(json!({ "other": 1 })), "InvalidRequestContent", ""),
        (
            deployment(SUBSCRIPTION_SCHEMA, &json!({}), &json!({})),
            "InvalidTemplate",
            "properties.template.$schema",
        ),
        (
            deployment(GROUP_SCHEMA, &json!({}), &json!({ "x": { "value": 1 } })),
            "InvalidTemplate",
            "properties.parameters",
        ),
        (json!({ "properties": { "mode": "Incremental" } }), "InvalidRequestContent", ""),
        (json!({ "properties": { "template": {} } }), "InvalidRequestContent", ""),
        (
            json!({ "properties": { "mode": "Incremental", "tempalte": {} } }),
            "InvalidRequestContent",
            "",
        ),
        (json!({}), "InvalidRequestContent", ""),
        (json!([]), "InvalidRequestContent", ""),
    ];
    for (body, code, path) in cases {
        let (status, found_code, found_path) = rejection(&fixture, &body);
        assert_eq!((found_code.as_str(), found_path.as_str()), (code, path), "{body}");
        assert_eq!(status, StatusCode::BAD_REQUEST);
        let (status, reply) = send(&fixture, "POST", &format!("{DEPLOYMENT}/validate"), &body);
        assert_eq!((status, &reply["error"]["code"]), (StatusCode::BAD_REQUEST, &json!(code)));
    }
    let long = DEPLOYMENT.replace("/app", &format!("/{}", "x".repeat(65)));
    for path in [long, DEPLOYMENT.replace("/app", "/a%20b")] {
        let (_, reply) = send(&fixture, "PUT", &path, &group_deployment(&json!({})));
        assert_eq!(reply["error"]["code"], "InvalidDeploymentName");
    }
}

#[test]
fn deployment_features_that_are_not_implemented_return_501() {
    let fixture = ArmFixture::new();
    for (name, value) in [
        ("mode", json!("Complete")),
        ("templateLink", json!({ "uri": "https://example.test/t.json" })),
        ("parametersLink", json!({ "uri": "https://example.test/p.json" })),
        ("onErrorDeployment", json!({ "type": "LastSuccessful" })),
        ("debugSetting", json!({ "detailLevel": "requestContent" })),
    ] {
        let mut body = group_deployment(&json!({}));
        body["properties"][name] = value;
        let (status, reply) = send(&fixture, "PUT", DEPLOYMENT, &body);
        assert_eq!(status, StatusCode::NOT_IMPLEMENTED, "{name}");
        let message = reply["error"]["message"].as_str().unwrap();
        assert!(message.contains(if name == "mode" { "Complete" } else { name }), "{message}");
    }
}

#[test]
fn what_if_predicts_the_change_of_each_resource() {
    let fixture = ArmFixture::new();
    let tags = json!({ "tags": { "team": "a" } });
    deploy(
        &fixture,
        &group_deployment(&json!({ "resources": [cache("one", &tags), cache("two", &tags)] })),
    );
    let referring = json!({ "properties": { "x": "[reference('new').y]" } });
    let resources = json!([
        cache("one", &tags),
        cache("two", &json!({ "tags": { "team": "b" } })),
        cache("new", &json!({})),
        cache("referring", &referring),
    ]);
    let mut body = group_deployment(&json!({ "resources": resources }));
    let what_if = format!("{DEPLOYMENT}/whatIf");
    let (status, reply) = send(&fixture, "POST", &what_if, &body);
    assert_eq!((status, &reply["status"]), (StatusCode::OK, &json!("Succeeded")), "{reply}");
    let changes = reply["properties"]["changes"].as_array().unwrap();
    let kinds: Vec<_> =
        changes.iter().map(|it| it["changeType"].as_str().unwrap()).take(4).collect();
    assert_eq!(kinds, ["NoChange", "Modify", "Create", "Create"]);
    assert_eq!(changes[1]["delta"][0]["path"], "tags.team");
    assert_eq!(changes[3]["after"]["properties"]["x"], "[reference('new').y]");
    let ignored = changes.iter().skip(4).all(|it| it["changeType"] == "Ignore");
    assert!(changes.len() > 4 && ignored, "{changes:?}");
    let path = format!("{GROUP}/providers/Microsoft.Cache/redis/new");
    assert_eq!(send(&fixture, "GET", &path, &Value::Null).0, StatusCode::NOT_FOUND);

    body["properties"]["whatIfSettings"] = json!({ "resultFormat": "ResourceIdOnly" });
    let (_, reply) = send(&fixture, "POST", &what_if, &body);
    let first = &reply["properties"]["changes"][1];
    assert!(first["changeType"] == "Modify" && first.get("after").is_none(), "{first}");
    let (status, _) = send(&fixture, "PUT", DEPLOYMENT, &body);
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

#[test]
fn caller_needs_the_permissions_for_every_resource() {
    let fixture = ArmFixture::new();
    let body = workload_identity_deployment();
    let as_client = |who: EntraClientId, method: &str, path: &str| {
        let reply = fixture.send_request(who, method, path, &body.to_string());
        (reply.status, reply_json(&reply)["error"].clone())
    };
    let (status, error) = as_client(fixture.reader, "PUT", DEPLOYMENT);
    assert_eq!((status, &error["code"]), (StatusCode::FORBIDDEN, &json!("AuthorizationFailed")));
    // A role that can deploy, and write networks only.
    let network_contributor = "4d97b98b-1d4f-4787-a291-c67834d212e7";
    grant(&fixture, fixture.reader, network_contributor);
    for (method, path) in
        [("PUT", DEPLOYMENT.to_owned()), ("POST", format!("{DEPLOYMENT}/validate"))]
    {
        let (status, error) = as_client(fixture.reader, method, &path);
        assert_eq!(status, StatusCode::BAD_REQUEST, "{error}");
        assert_eq!(error["code"], "InvalidTemplateDeployment", "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(
            message.starts_with("Deployment failed with multiple errors: 'Authorization failed for template resource '0d4a8c16-1111-4222-8333-944444444444' of type 'Microsoft.Authorization/roleAssignments'. The client '"),
            "{message}"
        );
        assert!(!message.contains("virtualNetworks"), "{message}");
    }
    let mut unchecked = body.clone();
    unchecked["properties"]["validationLevel"] = json!("ProviderNoRbac");
    let reply = fixture.send_request(fixture.reader, "PUT", DEPLOYMENT, &unchecked.to_string());
    assert_eq!(reply.status, StatusCode::CREATED);
    let deployed = get(&fixture, DEPLOYMENT);
    let details = deployed["properties"]["error"]["details"].as_array().unwrap();
    let denied = details.iter().filter(|it| it["code"] == "AuthorizationFailed").count();
    assert_eq!(denied, 2, "the vault and the identity: {details:?}");
}

/// Assigns a role at the resource group.
fn grant(fixture: &ArmFixture, client: EntraClientId, role: &str) {
    let principal = {
        let state = fixture.probe.engine.state();
        state.azure.directory.service_principal_by_client_id(client).unwrap().object_id
    };
    let path = format!(
        "{GROUP}/providers/Microsoft.Authorization/roleAssignments/0d4a8c16-2222-4222-8333-944444444444"
    );
    let body = json!({
        "properties": {
            "roleDefinitionId": format!("/providers/Microsoft.Authorization/roleDefinitions/{role}"),
            "principalId": principal,
        },
    });
    let (status, reply) = send(fixture, "PUT", &path, &body);
    assert_eq!(status, StatusCode::CREATED, "{reply}");
}

#[test]
fn validate_returns_the_resources_and_writes_nothing() {
    let fixture = ArmFixture::new();
    let (status, reply) =
        send(&fixture, "POST", &format!("{DEPLOYMENT}/validate"), &workload_identity_deployment());
    assert_eq!(status, StatusCode::OK, "{reply}");
    let properties = &reply["properties"];
    assert_eq!(properties["validatedResources"].as_array().unwrap().len(), 7);
    assert_eq!(properties["providers"].as_array().unwrap().len(), 4);
    let (status, _) = send(&fixture, "HEAD", DEPLOYMENT, &Value::Null);
    assert_eq!(status, StatusCode::NOT_FOUND);
    let vault = format!("{GROUP}/providers/Microsoft.KeyVault/vaults/demoapp-vault");
    assert_eq!(send(&fixture, "GET", &vault, &Value::Null).0, StatusCode::NOT_FOUND);
}

#[test]
fn azure_cli_sends_the_template_with_comments_and_an_unquoted_name() {
    let fixture = ArmFixture::new();
    let template = format!(
        "{{ // comment\n  \"$schema\": \"{GROUP_SCHEMA}\",\n  \"contentVersion\": \"1.0.0.0\", /* more */\n  \"variables\": {{ \"lines\": \"[concat('a',\n 'b')]\" }},\n  \"resources\": [],\n  'outputs': {{ \"o\": {{ \"type\": \"string\", \"value\": \"[variables('lines')]\", }} }}\n}}"
    );
    let body = format!(
        "{{\"properties\": {{\"parameters\": {{}}, \"mode\": \"Incremental\", template:{template}}}}}"
    );
    let reply = fixture.send_request(fixture.owner, "PUT", DEPLOYMENT, &body);
    assert_eq!(reply.status, StatusCode::CREATED, "{}", reply_json(&reply));
    assert_eq!(get(&fixture, DEPLOYMENT)["properties"]["outputs"]["o"]["value"], "ab");
    for malformed in ["{\"properties\": {", "{\"properties\" {}}", "", "[[[["] {
        let reply = fixture.send_request(fixture.owner, "PUT", DEPLOYMENT, malformed);
        assert_eq!(reply_json(&reply)["error"]["code"], "InvalidRequestContent", "{malformed}");
    }
    let deep = "[".repeat(100_000);
    let reply = fixture.send_request(fixture.owner, "PUT", DEPLOYMENT, &deep);
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
}

#[test]
fn history_is_listed_exported_and_deleted() {
    let fixture = ArmFixture::new();
    let body = group_deployment(&json!({ "resources": [cache("one", &json!({}))] }));
    deploy(&fixture, &body);
    let failed = DEPLOYMENT.replace("/app", "/failed");
    let invalid = group_deployment(&json!({
        "resources": [cache("one", &json!({ "tags": { "a<b": "c" } }))],
    }));
    send(&fixture, "PUT", &failed, &invalid);
    let list = DEPLOYMENT.trim_end_matches("/app");
    let names = |query: &str| {
        let listed = get(&fixture, &format!("{list}{query}"));
        let items = listed["value"].as_array().unwrap().clone();
        let mut names: Vec<_> =
            items.iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect();
        names.sort_unstable();
        names
    };
    assert_eq!(names(""), ["app", "failed"]);
    assert_eq!(names("?$filter=provisioningState%20eq%20'Failed'"), ["failed"]);
    let export = send(&fixture, "POST", &format!("{DEPLOYMENT}/exportTemplate"), &Value::Null).1;
    assert_eq!(export["template"], body["properties"]["template"]);
    let (status, reply) = send(&fixture, "POST", &format!("{DEPLOYMENT}/cancel"), &Value::Null);
    assert_eq!(status, StatusCode::CONFLICT, "{reply}");
    assert_eq!(send(&fixture, "HEAD", DEPLOYMENT, &Value::Null).0, StatusCode::NO_CONTENT);
    for _ in 0..2 {
        let (status, _) = send(&fixture, "DELETE", DEPLOYMENT, &Value::Null);
        assert_eq!(status, StatusCode::NO_CONTENT);
    }
    assert_eq!(names(""), ["failed"]);
    assert_eq!(get(&fixture, DEPLOYMENT)["error"]["code"], "DeploymentNotFound");
    let written = format!("{GROUP}/providers/Microsoft.Cache/redis/one");
    assert_eq!(send(&fixture, "GET", &written, &Value::Null).0, StatusCode::OK);
    let missing = DEPLOYMENT.replace("/platform/", "/none/");
    assert_eq!(get(&fixture, &missing)["error"]["code"], "ResourceGroupNotFound");
}

#[test]
fn history_of_a_scope_is_limited() {
    let mut history = DeploymentStore::default();
    let stored = |group: &str, second: i64| {
        let scope: AccessScope =
            format!("/subscriptions/s/resourceGroups/{group}").parse().unwrap();
        StoredDeployment {
            id: scope.child(&format!("providers/{DEPLOYMENT_TYPE}/d{second}")),
            scope,
            location: None,
            tags: None,
            template: Value::Null,
            properties: Map::new(),
            timestamp: Timestamp::from_second(second).unwrap(),
            outcome: DeploymentOutcome::default(),
            status_id: Uuid::nil(),
        }
    };
    history.insert(stored("other", 0));
    for second in 0..=800 {
        history.insert(stored("full", second));
    }
    let scope = stored("full", 0).scope;
    let names: Vec<_> = history.of_scope(&scope).iter().map(|it| it.name()).collect();
    assert_eq!((names.len(), names[0], names[799]), (800, "d800", "d1"));
    history.insert(stored("FULL", 800));
    assert_eq!(history.of_scope(&scope).len(), 800, "a repeated deployment replaces its entry");
    history.remove_within(&scope);
    assert_eq!(history.0.len(), 1);
}

#[test]
fn history_is_removed_with_its_group() {
    let fixture = ArmFixture::new();
    let group = "/subscriptions/sub/resourceGroups/temporary";
    send(&fixture, "PUT", group, &json!({ "location": "eastus" }));
    let path = format!("{group}/providers/Microsoft.Resources/deployments/one");
    send(&fixture, "PUT", &path, &group_deployment(&json!({})));
    assert_eq!(get(&fixture, &path)["properties"]["provisioningState"], "Succeeded");
    send(&fixture, "DELETE", group, &Value::Null);
    assert_eq!(fixture.probe.engine.state().azure.resources.deployments.0.len(), 0);
}

#[test]
fn subscription_deployment_creates_a_resource_group() {
    let fixture = ArmFixture::new();
    let elements = json!({
        "parameters": { "name": { "type": "string" } },
        "resources": [{
            "type": "Microsoft.Resources/resourceGroups",
            "apiVersion": "2024-03-01",
            "name": "[parameters('name')]",
            "location": "westeurope",
            "tags": { "team": "identity" },
        }],
        "outputs": {
            "id": { "type": "string", "value": "[resourceId('Microsoft.Resources/resourceGroups', parameters('name'))]" },
        },
    });
    let parameters = json!({ "name": { "value": "created" } });
    let mut body = deployment(SUBSCRIPTION_SCHEMA, &elements, &parameters);
    let (_, reply) = send(&fixture, "PUT", SUBSCRIPTION_DEPLOYMENT, &body);
    assert_eq!(reply["error"]["code"], "LocationRequired");
    body["location"] = json!("West Europe");
    let (status, _) = send(&fixture, "PUT", SUBSCRIPTION_DEPLOYMENT, &body);
    assert_eq!(status, StatusCode::CREATED);
    let deployed = get(&fixture, SUBSCRIPTION_DEPLOYMENT);
    assert_eq!(deployed["properties"]["provisioningState"], "Succeeded", "{deployed}");
    assert_eq!(deployed["location"], "westeurope");
    let group = "/subscriptions/sub/resourceGroups/created";
    assert_eq!(deployed["properties"]["outputs"]["id"]["value"], group);
    assert_eq!(get(&fixture, group)["tags"]["team"], "identity");
    body["location"] = json!("eastus");
    let (status, reply) = send(&fixture, "PUT", SUBSCRIPTION_DEPLOYMENT, &body);
    assert_eq!(
        (status, &reply["error"]["code"]),
        (StatusCode::CONFLICT, &json!("InvalidDeploymentLocation"))
    );
    let group_deployments = format!("{group}/providers/Microsoft.Resources/deployments");
    assert_eq!(get(&fixture, &group_deployments)["value"], json!([]));
}

#[test]
fn deployment_waits_for_long_running_writes() {
    let network = json!({
        "resources": [
            {
                "type": "Microsoft.Network/virtualNetworks",
                "apiVersion": "2024-05-01",
                "name": "net",
                "location": "eastus",
                "properties": { "addressSpace": { "addressPrefixes": ["10.3.0.0/16"] } },
            },
            cache("last", &json!({ "dependsOn": ["net"] })),
        ],
    });
    for style in ["async-operation", "location", "body"] {
        for (outcome, state) in [
            (json!({ "status": "Succeeded" }), "Succeeded"),
            (json!({ "status": "Failed", "code": "NoCapacity", "message": "full" }), "Failed"),
        ] {
            let fixture = ArmFixture::new();
            let settings = json!({
                "longRunning": [{
                    "resourceType": "Microsoft.Network",
                    "polls": 2,
                    "style": style,
                    "outcome": outcome,
                }],
            });
            *fixture.probe.engine.state().azure.resources.settings =
                serde_json::from_value(settings).unwrap();
            let deployed = deploy(&fixture, &group_deployment(&network));
            let properties = &deployed["properties"];
            assert_eq!(properties["provisioningState"], state, "{style}: {properties:#}");
            if state == "Failed" {
                let detail = &properties["error"]["details"][0];
                assert_eq!(detail["code"], "ResourceDeploymentFailure");
                assert!(detail["message"].as_str().unwrap().contains("state 'Failed'"));
                if style != "body" {
                    assert_eq!(detail["details"][0]["code"], "NoCapacity", "{style}: {detail}");
                }
            }
        }
    }
}
