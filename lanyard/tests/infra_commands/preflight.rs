//! Limits and names that a plan exceeds are found before the first write.

use serde_json::{Value, json};

use super::{CREATE_INFRA, WORKLOAD_IDENTITIES};
use crate::infra_workspace::InfraWorkspace;

/// The workspace with other limits, and the command that they prevent.
struct LimitedAzure {
    workspace: InfraWorkspace,
}

impl LimitedAzure {
    fn start(settings: Value) -> Self {
        let workspace = InfraWorkspace::start();
        workspace.change_settings(settings);
        Self { workspace }
    }

    /// Runs a command that a finding prevents. It sent no write; checks of names change nothing.
    fn assert_prevented(&self, arguments: &[impl AsRef<str>], expected: &[&str]) {
        let position = self.workspace.request_count();
        let (code, error) = self.workspace.run(arguments);
        assert_eq!(code, Some(1), "{error}");
        for text in expected {
            assert!(error.contains(text), "{text}: {error}");
        }
        let writes = self.workspace.writes_since(position);
        assert_eq!(writes, Vec::<String>::new(), "{error}");
    }
}

fn quota(name: &str, limit: u64) -> Value {
    json!({ "resourceManager": { "quotas": [{ "name": name, "limit": limit }] } })
}

fn create_infra() -> Vec<String> {
    let arguments = [&CREATE_INFRA[..], &WORKLOAD_IDENTITIES].concat();
    InfraWorkspace::cluster_arguments(&arguments)
}

#[test]
fn exceeded_limits_of_networks_prevent_a_cluster() {
    for (name, display_name) in [
        ("PublicIPAddresses", "Public IP Addresses"),
        ("StandardSkuPublicIpAddresses", "Public IP Addresses - Standard"),
        ("LoadBalancers", "Load Balancers"),
        ("VirtualNetworks", "Virtual Networks"),
    ] {
        let azure = LimitedAzure::start(quota(name, 0));
        azure.workspace.write_identities();
        let used = format!("`{name}` ({display_name}) in eastus:");
        let expected = [&*used, "of 0 are used, and the plan needs 1", "request a higher limit"];
        azure.assert_prevented(&create_infra(), &expected);
    }
}

#[test]
fn exceeded_limits_of_vcpus_prevent_a_management_cluster() {
    let create = ["create", "aks", "azure", "--prefix", "dev"];
    for name in ["cores", "standardDSv4Family"] {
        let azure = LimitedAzure::start(quota(name, 11));
        let expected = [name, "in eastus: 0 of 11 are used, and the plan needs 12"];
        azure.assert_prevented(&create, &expected);
    }
    let azure = LimitedAzure::start(quota("cores", 350));
    let unknown = [&create[..], &["--node-vm-size", "Standard_D5s_v4"]].concat();
    let expected = ["cannot use machines of the size `Standard_D5s_v4` in eastus", "list-skus"];
    azure.assert_prevented(&unknown, &expected);
    // The autoscaler may reach the limit later.
    azure.workspace.change_settings(quota("cores", 12));
    let scaled = [&create[..], &["--max-count", "6"]].concat();
    let (code, error) = azure.workspace.run(&scaled);
    assert_eq!(code, Some(0), "{error}");
    assert!(error.contains("6 nodes need 24"), "{error}");
}

#[test]
fn too_many_role_assignments_prevent_a_vault() {
    let limit = json!({ "roleAssignmentLimits": { "inSubscription": 3 } });
    let azure = LimitedAzure::start(limit);
    let create = ["create", "keyvault", "azure", "--name", "harbour-dev"];
    let expected = ["role assignments of the subscription", "of 3 are used", "lanyard sweep azure"];
    azure.assert_prevented(&create, &expected);
}

#[test]
fn twenty_credentials_of_an_identity_prevent_another_one() {
    let azure = LimitedAzure::start(json!({}));
    let create = [
        "create",
        "iam",
        "azure",
        "--resource-group-name",
        "identities",
        "--output-file",
        "iam.json",
        "--oidc-issuer-url",
        "https://issuer.example.com/x",
    ];
    let create = InfraWorkspace::cluster_arguments(&create);
    azure.workspace.succeed_json(&create);
    let identity = azure.workspace.identities("identities").remove(0);
    azure.workspace.replace_credential(&identity);
    let expected = [&*identity, "20 of 20 are used, and the plan needs 1", "another identity"];
    azure.assert_prevented(&create, &expected);
}

#[test]
fn taken_and_deleted_names_prevent_a_vault_and_a_storage_account() {
    let azure = LimitedAzure::start(json!({}));
    let vault = |name| ["create", "keyvault", "azure", "--name", name];
    let expected = ["Azure does not accept the name `harbour-identities`", "choose another name"];
    azure.assert_prevented(&vault("harbour-identities"), &expected);
    azure.workspace.succeed_json(&vault("harbour-dev"));
    azure.workspace.succeed_json(&["destroy", "keyvault", "azure", "--name", "harbour-dev"]);
    let expected = ["a deleted vault has the name `harbour-dev`", "--recover"];
    azure.assert_prevented(&vault("harbour-dev"), &expected);
    let recovered = [&vault("harbour-dev")[..], &["--recover"]].concat();
    let region = "--recover: the deleted vault is in the region `eastus`";
    azure.assert_prevented(&[&recovered[..], &["--location", "westus"]].concat(), &[region]);
    azure.workspace.succeed_json(&recovered);
    let account = |name| ["create", "oidc", "azure", "--name", name, "--location", "eastus"];
    azure.workspace.succeed_json(&account("lagoonissuer"));
    let other_group = ["--oidc-resource-group-name", "other", "--state", "other-state"];
    let taken = [&account("lagoonissuer")[..], &other_group].concat();
    azure.assert_prevented(&taken, &["Azure does not accept the name `lagoonissuer`"]);
}

#[test]
fn vault_of_another_group_or_another_name_is_not_recovered() {
    let azure = LimitedAzure::start(json!({}));
    let recover = |name| ["create", "keyvault", "azure", "--name", name, "--recover"];
    let missing = "--recover: the subscription has no deleted vault `harbour-dev`";
    azure.assert_prevented(&recover("harbour-dev"), &[missing, "leave out --recover"]);
    azure.workspace.succeed_json(&["create", "keyvault", "azure", "--name", "harbour-dev"]);
    azure.workspace.succeed_json(&["destroy", "keyvault", "azure", "--name", "harbour-dev"]);
    let missing = "--recover: the subscription has no deleted vault `harbour-dev2`";
    azure.assert_prevented(&recover("harbour-dev2"), &[missing, "correct the name"]);
    let other_group =
        [&recover("harbour-dev")[..], &["--resource-group-name", "other-group"]].concat();
    let expected = [
        "--recover: the deleted vault is `/subscriptions/",
        "name its resource group `os4-common`",
    ];
    azure.assert_prevented(&other_group, &expected);
}

#[test]
fn tag_that_azure_rejects_prevents_a_cluster() {
    let azure = LimitedAzure::start(json!({}));
    azure.workspace.write_identities();
    let tag = ["--resource-group-tags", "team=platform,bad<tag=x"].map(str::to_owned);
    let expected = ["error (tags): ", "the name of the tag `bad<tag` contains `<`"];
    azure.assert_prevented(&[&create_infra()[..], &tag].concat(), &expected);

    let configuration = azure.workspace.read_file("cluster.yaml");
    let tags = "baseDomain: hcp.example.com\n  resourceGroupTags: {\"bad<tag\": x}";
    let configuration = configuration.replace("baseDomain: hcp.example.com", tags);
    std::fs::write(azure.workspace.files().join("cluster.yaml"), configuration).unwrap();
    azure.assert_prevented(&["apply", "azure", "-f", "cluster.yaml"], &expected);
    let plan = azure.workspace.piped_command(&["plan", "azure", "-f", "cluster.yaml"]).output();
    let plan = plan.unwrap();
    assert_eq!(plan.status.code(), Some(1), "{plan:?}");
    let text = String::from_utf8(plan.stdout).unwrap();
    assert!(expected.iter().all(|it| text.contains(it)), "{text}");
}

#[test]
fn unknown_region_prevents_a_vault() {
    let azure = LimitedAzure::start(json!({}));
    let create = ["create", "keyvault", "azure", "--name", "harbour-dev"];
    let create = [&create[..], &["--location", "westeurop"]].concat();
    let expected = ["`westeurop` is not a region of the subscription", "list-locations"];
    azure.assert_prevented(&create, &expected);
}

#[test]
fn unusual_identity_files_are_findings_of_the_plan() {
    let azure = LimitedAzure::start(json!({}));
    // Its components all have the same id.
    azure.workspace.write_identities();
    let (code, error) = azure.workspace.run(&create_infra());
    assert_eq!(code, Some(0), "{error}");
    let expected = "warning (identity files): iam.json: `disk.clientID`: is the id of `cloudProvider.clientID`";
    assert!(error.contains(expected), "{error}");
    // A run within the limits has no other findings.
    assert!(!error.contains("(quotas)") && !error.contains("(names)"), "{error}");
}
