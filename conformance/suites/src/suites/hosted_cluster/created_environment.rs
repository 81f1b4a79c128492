//! Trials with a vault, identities and infrastructure that lanyard's commands create in the local Azure of the
//! cluster, beginning with nothing but a subscription and a DNS zone.
//!
//! The HostedCluster has the name of the example, which earlier trials deleted. Its vault is in the tenant of the
//! subscription, where the commands create it; that of the example is in another tenant. So the release of the local
//! Azure is upgraded first, as the page describes for another HostedCluster.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use lanyard_vocabulary::Component;
use libtest_mimic::Failed;
use serde_json::{Value, json};

use super::cluster_lifecycle::{
    all_ready, check_canaries, check_identity_status, wait_for_identities,
};
use super::{
    CONTROL_PLANE_NAMESPACE, HostedClusterSuiteFixture, RELEASE_NAMESPACE, failed_with_causes,
};
use crate::file_error::FileError;
use crate::tutorial::TutorialStep;

/// The prefix of the environment, and the name of its vault.
const PREFIX: &str = "reef-dev";
/// The client id of the managed identity of every node in the local Azure: `examples/kubernetes/operator.yaml`.
const NODE_CLIENT_ID: &str = "7f1c6b0e-52d9-4a38-8e4f-b60d93a1c275";

/// The commands that prepare Azure. `READER` is the object id of the nodes' identity.
const COMMANDS: [&str; 3] = [
    "create keyvault azure --name reef-dev --secret-reader READER",
    "create identities azure --prefix reef-dev --enable-kms --managed-identities-file cp.json \
     --data-plane-identities-file dp.json --oidc-issuer-url https://issuer.example.com/reef",
    "create infra azure --name reef --infra-id reef-x7k2p --base-domain hcp.example.com \
     --managed-identities-file cp.json --data-plane-identities-file dp.json --assign-identity-roles \
     --assign-custom-hcp-roles --dns-zone-rg-name lanyard-dns --output-file infra.yaml",
];

/// The example whose vault is in the tenant of the subscription.
fn example(fixture: &HostedClusterSuiteFixture) -> Result<Value, Failed> {
    let path = fixture.inputs.repository.join("examples/hostedcluster.yaml");
    let text = std::fs::read_to_string(&path).map_err(FileError::of("read", &path));
    let text = text.map_err(failed_with_causes)?;
    let mut cluster: Value = serde_saphyr::from_str(&text).map_err(failed_with_causes)?;
    let azure = &mut cluster["spec"]["platform"]["azure"];
    let tenant = azure["tenantID"].clone();
    let identities = &mut azure["azureAuthenticationConfig"]["managedIdentities"];
    identities["controlPlane"]["managedIdentitiesKeyVault"]["tenantID"] = tenant;
    Ok(cluster)
}

/// The directory of the commands, and the variables that send their requests to the local Azure.
struct AzureCommands {
    program: PathBuf,
    directory: PathBuf,
    environment: Vec<(&'static str, String)>,
}

impl AzureCommands {
    /// The commands with the credentials of the application that owns the subscription.
    async fn new(fixture: &HostedClusterSuiteFixture) -> Result<Self, Failed> {
        let directory = fixture.inputs.suite_cluster.directory().join("created-environment");
        std::fs::create_dir_all(&directory).map_err(failed_with_causes)?;
        let config_map = ["configmap", "lanyard-azure-ca", "--namespace", CONTROL_PLANE_NAMESPACE];
        let config_map = fixture.kubectl().get_json(&config_map).map_err(failed_with_causes)?;
        let authority = config_map["data"]["ca.crt"].as_str().ok_or("the ConfigMap has no CA")?;
        let authority_file = directory.join("ca.crt");
        std::fs::write(&authority_file, authority).map_err(failed_with_causes)?;
        let clients: Value =
            fixture.azure_control.get("test-clients").await.map_err(failed_with_causes)?;
        let text = |pointer: &str| {
            let found = clients.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
            found.ok_or_else(|| Failed::from(format!("the test clients have no `{pointer}`")))
        };
        let environment = vec![
            ("HTTPS_PROXY", fixture.ports.proxy_url()),
            ("SSL_CERT_FILE", authority_file.display().to_string()),
            ("XDG_STATE_HOME", directory.join("state").display().to_string()),
            ("AZURE_TENANT_ID", text("/tenant")?),
            ("AZURE_SUBSCRIPTION_ID", text("/subscription")?),
            ("AZURE_CLIENT_ID", text("/secret/clientId")?),
            ("AZURE_CLIENT_SECRET", text("/secret/clientSecret")?),
        ];
        Ok(Self { program: fixture.inputs.lanyard_program.clone(), directory, environment })
    }

    /// Runs `lanyard` and returns its JSON output.
    fn run(&self, arguments: &str) -> Result<Value, Failed> {
        let mut command = Command::new(&self.program);
        command.args(arguments.split_whitespace()).args(["--output", "json"]);
        command.current_dir(&self.directory).env_remove("NO_PROXY").env_remove("no_proxy");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let output = command.output().map_err(failed_with_causes)?;
        if !output.status.success() {
            let (printed, error) = (&output.stdout, &output.stderr);
            let text = [printed, error].map(|text| String::from_utf8_lossy(text).into_owned());
            return Err(format!("`lanyard {arguments}` failed: {}", text.concat()).into());
        }
        serde_json::from_slice(&output.stdout).map_err(failed_with_causes)
    }

    fn read_yaml(&self, name: &str) -> Result<Value, Failed> {
        let path = self.directory.join(name);
        let text = std::fs::read_to_string(&path).map_err(FileError::of("read", &path));
        serde_saphyr::from_str(&text.map_err(failed_with_causes)?).map_err(failed_with_causes)
    }
}

/// Creates everything with commands, applies a HostedCluster with the results, and waits until its nine identities
/// are proven.
pub(super) async fn prove_created_identities(
    fixture: &HostedClusterSuiteFixture,
) -> Result<(), Failed> {
    upgrade_local_azure(fixture)?;
    let commands = AzureCommands::new(fixture).await?;
    let reader = node_identity(fixture).await?;
    let mut outputs = Vec::new();
    for command in COMMANDS {
        outputs.push(commands.run(&command.replace("READER", &reader))?);
    }
    let cluster = hosted_cluster(fixture, &commands, &outputs[1])?;
    fixture.kubectl().apply(&cluster).map_err(failed_with_causes)?;
    check_canaries(fixture).await?;
    check_identity_status(fixture).await?;
    let rows = wait_for_identities(fixture, "nine created identities are ready", all_ready).await?;
    let created = outputs[1]["servicePrincipals"].as_array().cloned().unwrap_or_default();
    for (component, row) in &rows {
        let is_its = |it: &&Value| it["component"] == component.as_str();
        let created = created.iter().find(is_its).map(|it| &it["clientId"]);
        if created.is_none_or(|id| *id != row["clientID"]) {
            return Err(format!("{component} has another identity than {created:?}: {row}").into());
        }
    }
    Ok(())
}

/// Replaces the certificate of one created identity, and waits until its new version is proven.
pub(super) async fn rotate_created_identity(
    fixture: &HostedClusterSuiteFixture,
) -> Result<(), Failed> {
    let commands = AzureCommands::new(fixture).await?;
    for component in [Component::Disk, Component::Kms] {
        let before = wait_for_identities(fixture, "nine identities are ready", all_ready).await?;
        let version = |row: &Value| row["loadedVersion"].clone();
        let old = before.get(component.name()).map(version).unwrap_or_default();
        commands.run(&format!(
            "rotate identity azure --prefix {PREFIX} --component {component} --no-wait"
        ))?;
        let what = format!("the new version of `{component}` is proven");
        let is_proven = |rows: &BTreeMap<String, Value>| {
            let row = rows.get(component.name());
            all_ready(rows) && row.is_some_and(|row| version(row) != old)
        };
        let rows = wait_for_identities(fixture, &what, is_proven).await?;
        let others = |rows: &BTreeMap<String, Value>| -> Vec<Value> {
            let others = rows.iter().filter(|(name, _)| *name != component.name());
            others.map(|(_, row)| version(row)).collect()
        };
        if others(&rows) != others(&before) {
            return Err(format!("another identity changed: {rows:?}").into());
        }
    }
    Ok(())
}

/// Replaces the local Azure by one for the HostedCluster of this module, and restarts the node plugin, which caches
/// a token of the former one.
fn upgrade_local_azure(fixture: &HostedClusterSuiteFixture) -> Result<(), Failed> {
    let directory = fixture.inputs.suite_cluster.directory();
    let seed = directory.join("created-environment.yaml");
    std::fs::write(&seed, example(fixture)?.to_string()).map_err(failed_with_causes)?;
    let upgrade = format!(
        "helm upgrade lanyard-azure charts/lanyard-azure --namespace {RELEASE_NAMESPACE} --wait \
         --reuse-values --set-file hostedCluster={}",
        seed.display()
    );
    let restart = "rollout restart daemonset/lanyard-node";
    let status = "rollout status daemonset/lanyard-node --timeout 2m";
    let kubectl = |command| format!("kubectl --namespace {RELEASE_NAMESPACE} {command}");
    for command in [upgrade, kubectl(restart), kubectl(status)] {
        let step = TutorialStep { command, output: Vec::new() };
        let ran = fixture.tutorial_environment.run_step(&step);
        ran.map_err(|error| fixture.failure_with_logs(error))?;
    }
    Ok(())
}

/// The object id of the nodes' identity.
async fn node_identity(fixture: &HostedClusterSuiteFixture) -> Result<String, Failed> {
    let state: Value = fixture.azure_control.get("state").await.map_err(failed_with_causes)?;
    let principals = state["principals"].as_array().map(Vec::as_slice).unwrap_or_default();
    let found = principals.iter().find(|it| it["clientId"] == NODE_CLIENT_ID);
    let id = found.and_then(|it| it["objectId"].as_str()).map(str::to_owned);
    id.ok_or_else(|| "the local Azure has no identity of the nodes".into())
}

/// The HostedCluster with what the commands created. `identities` is the output of `create identities`.
fn hosted_cluster(
    fixture: &HostedClusterSuiteFixture,
    commands: &AzureCommands,
    identities: &Value,
) -> Result<Value, Failed> {
    let infra = commands.read_yaml("infra.yaml")?;
    let mut cluster = example(fixture)?;
    let spec = &mut cluster["spec"];
    spec["infraID"] = infra["infraID"].clone();
    spec["secretEncryption"] = identities["kms"]["secretEncryption"].clone();
    let azure = &mut spec["platform"]["azure"];
    azure["location"] = infra["region"].clone();
    for (field, output) in [
        ("resourceGroup", "resourceGroupName"),
        ("vnetID", "vnetID"),
        ("subnetID", "subnetID"),
        ("securityGroupID", "securityGroupID"),
    ] {
        azure[field] = infra[output].clone();
    }
    let mut control_plane = infra["controlPlaneMIs"]["controlPlane"].clone();
    for identity in control_plane.as_object_mut().into_iter().flat_map(|it| it.values_mut()) {
        // The certificate's name is a field of the file only.
        identity.as_object_mut().map(|identity| identity.remove("certificateName"));
    }
    azure["azureAuthenticationConfig"]["managedIdentities"] =
        json!({ "controlPlane": control_plane, "dataPlane": infra["dataPlaneIdentities"] });
    Ok(cluster)
}
