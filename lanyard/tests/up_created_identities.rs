//! Creates the identities and the infrastructure of a cluster in a local Azure, and runs the components with them.

#![cfg(all(feature = "cli", feature = "emulator"))]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

#[path = "azure/azure_serve_process.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod azure_serve_process;
#[path = "infra_commands/infra_workspace.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod infra_workspace;

use infra_workspace::InfraWorkspace;
use serde_json::{Value, json};

const VAULT: &str = "lagoon-credentials";

/// The HostedCluster of the example. Its vault is in the tenant of the subscription.
fn example() -> Value {
    let text = include_str!("../../examples/hostedcluster.yaml");
    let mut cluster: Value = serde_saphyr::from_str(text).unwrap();
    let azure = &mut cluster["spec"]["platform"]["azure"];
    let tenant = azure["tenantID"].clone();
    let identities = &mut azure["azureAuthenticationConfig"]["managedIdentities"];
    identities["controlPlane"]["managedIdentitiesKeyVault"]["tenantID"] = tenant;
    cluster
}

/// The example with what the commands created. `identities` is the output of `create identities`.
fn hosted_cluster(workspace: &InfraWorkspace, identities: &Value) -> Value {
    let mut cluster = example();
    let infra: Value = serde_saphyr::from_str(&workspace.read_file("infra.yaml")).unwrap();
    let spec = &mut cluster["spec"];
    spec["infraID"] = infra["infraID"].clone();
    spec["secretEncryption"] = identities["kms"]["secretEncryption"].clone();
    let azure = &mut spec["platform"]["azure"];
    azure["location"] = infra["region"].clone();
    azure["tenantID"] = workspace.variable("AZURE_TENANT_ID").into();
    for (field, output) in [
        ("resourceGroup", "resourceGroupName"),
        ("vnetID", "vnetID"),
        ("subnetID", "subnetID"),
        ("securityGroupID", "securityGroupID"),
    ] {
        azure[field] = infra[output].clone();
    }
    let mut control_plane = infra["controlPlaneMIs"]["controlPlane"].clone();
    for identity in control_plane.as_object_mut().unwrap().values_mut() {
        identity.as_object_mut().unwrap().remove("certificateName");
    }
    azure["azureAuthenticationConfig"]["managedIdentities"] =
        json!({ "controlPlane": control_plane, "dataPlane": infra["dataPlaneIdentities"] });
    cluster
}

#[test]
fn components_authenticate_with_created_identities() {
    let workspace = InfraWorkspace::start_for(&example().to_string());
    let reader = workspace.identity_object_id("platform", "vault-reader");
    let succeed = |line: &str| {
        let arguments: Vec<_> = line.split_whitespace().collect();
        workspace.succeed_json(&arguments)
    };
    succeed(&format!("create keyvault azure --name {VAULT} --secret-reader {reader}"));
    let identities = succeed(&format!(
        "create identities azure --prefix lagoon --vault {VAULT} --managed-identities-file cp.json \
         --data-plane-identities-file dp.json --oidc-issuer-url https://issuer.example.com/lagoon \
         --enable-kms"
    ));
    succeed(
        "create infra azure --name lagoon --infra-id lagoon-x7k2p --base-domain hcp.example.com \
         --managed-identities-file cp.json --data-plane-identities-file dp.json \
         --assign-identity-roles --assign-custom-hcp-roles --dns-zone-rg-name lanyard-dns \
         --output-file infra.yaml",
    );
    let cluster = serde_json::to_string(&hosted_cluster(&workspace, &identities)).unwrap();
    let (code, report, error) = workspace.run_up(&cluster);
    assert_eq!(code, Some(0), "{report:#}\n{error}");
    assert_eq!(report["ok"], true, "{report:#}");
    assert_eq!(report["components"].as_array().unwrap().len(), 9, "{report:#}");
}
