//! The fixture of the trials: an API server, a local Azure, and a directory in which the commands run.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use lanyard_cluster::{ControlPlane, SharedControlPlane};
use libtest_mimic::Failed;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::azure_observer::AzureObserver;
use crate::api_server::{DynamicKind, install_definitions};
use crate::azure_target::{HostedClusterNames, LocalAzureTarget};
use crate::suite_setup::start_control_plane;
use crate::suites::failed_with_causes;
use crate::suites::operator::OperatorSuiteFixture;
use crate::waiting::{eventually, sleep};

/// The name of the hosted cluster.
pub(super) const NAME: &str = "harbour2";
pub(super) const NAMESPACE: &str = "hosted";
pub(super) const INFRA_ID: &str = "harbour2-x7k2p";
/// The label of the objects of the cluster.
const INFRA_LABEL: &str = "hypershift.openshift.io/auto-created-for-infra";
/// The public DNS zone of the local Azure and its resource group.
const BASE_DOMAIN: &str = "hcp.example.com";
const DNS_GROUP: &str = "lanyard-dns";
const RELEASE_IMAGE: &str = "quay.io/openshift-release-dev/ocp-release:4.22.1-multi";
/// The token issuer of the cluster.
pub(super) const ISSUER: &str = "https://harbour.blob.core.windows.net/harbour";
const SIGNING_KEY: &str =
    include_str!("../../../../../../crates/credential/tests/fixtures/leaf.pkcs1.key");
/// The name of the quota of Secrets.
const QUOTA: &str = "trial";
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The fixture of all trials.
pub(super) struct CommandFixture {
    _plane: SharedControlPlane,
    client: Client,
    runtime: Arc<Runtime>,
    azure: LocalAzureTarget,
    observer: AzureObserver,
    kubeconfig: PathBuf,
    lanyard: PathBuf,
    files: TempDir,
    /// The id of the subnet for private link services in the network of the management cluster.
    pub(super) nat_subnet: String,
    /// What Azure contains without the cluster.
    pub(super) initial_azure: BTreeSet<String>,
}

/// A command that ended.
pub(super) struct EndedCommand {
    pub(super) code: Option<i32>,
    output: String,
    error: String,
}

impl EndedCommand {
    /// Fails unless the error output contains the text.
    pub(super) fn expect_error(&self, text: &str) -> Result<(), Failed> {
        if self.error.contains(text) {
            Ok(())
        } else {
            Err(format!("`{text}` is missing: {}{}", self.output, self.error).into())
        }
    }
}

impl CommandFixture {
    /// Starts the servers, and creates the network of the management cluster and the identities of the cluster.
    pub(super) fn start(suite: &OperatorSuiteFixture) -> Result<Self, Failed> {
        let inputs = &suite.control_plane_inputs;
        let runtime = Arc::clone(&suite.runtime);
        let (plane, client) =
            runtime.block_on(start_control_plane(inputs, &[])).map_err(failed_with_causes)?;
        let seed = serde_saphyr::to_string(&*suite.example)?;
        let lanyard = std::path::absolute(&inputs.lanyard_program)?;
        let names = HostedClusterNames::for_commands(&suite.example);
        let azure = LocalAzureTarget::start(&lanyard, &seed, names, &runtime)
            .map_err(failed_with_causes)?;
        let observer = runtime.block_on(AzureObserver::start(&azure))?;
        let nat_subnet = runtime.block_on(observer.create_management_network())?;
        let files = TempDir::new()?;
        for (name, content) in
            [("pull-secret.json", "{\"auths\": {}}"), ("signer.private", SIGNING_KEY)]
        {
            fs::write(files.path().join(name), content)?;
        }
        let kubeconfig = std::path::absolute(plane.kubeconfig_path(ControlPlane::ADMINISTRATOR))?;
        let mut fixture = Self {
            _plane: plane,
            client,
            runtime,
            azure,
            observer,
            kubeconfig,
            lanyard,
            files,
            nat_subnet,
            initial_azure: BTreeSet::new(),
        };
        let identities = [
            "create",
            "iam",
            "azure",
            "--name",
            NAME,
            "--infra-id",
            INFRA_ID,
            "--resource-group-name",
            "harbour2-identities",
            "--oidc-issuer-url",
            ISSUER,
            "--output-file",
            "iam.json",
            "--output",
            "json",
        ];
        fixture.succeed(&identities.map(str::to_owned))?;
        fixture.initial_azure = fixture.azure_resources()?;
        Ok(fixture)
    }

    /// Writes the identity files of an ARO HCP cluster, whose identities no trial uses.
    pub(super) fn write_managed_identities(&self) -> Result<(), Failed> {
        let id = "11111111-1111-1111-1111-111111111111";
        let names = [
            "imageRegistry",
            "ingress",
            "file",
            "disk",
            "nodePoolManagement",
            "cloudProvider",
            "network",
            "controlPlaneOperator",
        ];
        let mut control_plane: serde_json::Map<_, _> = names
            .into_iter()
            .map(|name| {
                let secret = format!("harbour-{name}");
                let identity = json!({
                    "clientID": id, "credentialsSecretName": secret, "objectEncoding": "hex",
                });
                (name.to_owned(), identity)
            })
            .collect();
        let vault = json!({ "name": "harbour-identities", "tenantID": id });
        control_plane.insert("managedIdentitiesKeyVault".to_owned(), vault);
        let workers = json!({
            "imageRegistryMSIClientID": id, "diskMSIClientID": id, "fileMSIClientID": id,
        });
        let directory = self.files.path();
        fs::write(directory.join("control-plane.json"), Value::Object(control_plane).to_string())?;
        fs::write(directory.join("workers.json"), workers.to_string())?;
        Ok(())
    }

    fn command(&self, arguments: &[String]) -> Command {
        let mut command = Command::new(&self.lanyard);
        command.args(arguments).current_dir(self.files.path()).env("KUBECONFIG", &self.kubeconfig);
        command.envs(self.azure.lanyard_environment()).envs(self.azure.lanyard_sign_in());
        command.env("XDG_STATE_HOME", self.files.path().join("state"));
        command
    }

    /// Runs a command.
    pub(super) fn run(&self, arguments: &[String]) -> Result<EndedCommand, Failed> {
        let output = self.command(arguments).output()?;
        Ok(EndedCommand {
            code: output.status.code(),
            output: String::from_utf8_lossy(&output.stdout).into_owned(),
            error: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Runs a command that must succeed, and returns its JSON output.
    pub(super) fn succeed(&self, arguments: &[String]) -> Result<Value, Failed> {
        let ended = self.run(arguments)?;
        if ended.code != Some(0) {
            let (code, output, error) = (ended.code, ended.output, ended.error);
            return Err(format!("{arguments:?} ended with {code:?}: {output}{error}").into());
        }
        Ok(serde_json::from_str(&ended.output)?)
    }

    /// Starts a command without waiting.
    pub(super) fn spawn(&self, arguments: &[String]) -> Result<Child, Failed> {
        let mut command = self.command(arguments);
        Ok(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?)
    }

    /// Starts a command and kills it at a request to Azure Resource Manager, counted from 0. Returns whether the
    /// command sent that many requests.
    pub(super) fn kill_at(&self, arguments: &[String], request: u32) -> Result<bool, Failed> {
        let effect = json!({ "type": "latency", "milliseconds": 600_000 });
        self.add_fault(&json!({
            "name": "kill", "service": "arm", "after": request, "times": 1, "effect": effect,
        }))?;
        let mut child = self.spawn(arguments)?;
        let is_killed = loop {
            if child.try_wait()?.is_some() {
                break false;
            }
            let rules: Value = self.block_on(self.azure.control_api().get("faults"))?;
            let rules = rules["value"].as_array().cloned().unwrap_or_default();
            let is_waiting = |rule: &Value| rule["name"] == "kill" && rule["times"] != json!(0);
            if !rules.iter().any(is_waiting) {
                child.kill()?;
                child.wait()?;
                break true;
            }
            self.runtime.block_on(sleep(POLL_INTERVAL));
        };
        self.remove_fault("kill")?;
        Ok(is_killed)
    }

    /// Adds a fault rule of the local Azure.
    pub(super) fn add_fault(&self, rule: &Value) -> Result<(), Failed> {
        let control = self.azure.control_api();
        self.block_on(control.post::<Value>("faults", rule))?;
        Ok(())
    }

    /// Removes a fault rule.
    pub(super) fn remove_fault(&self, name: &str) -> Result<(), Failed> {
        self.block_on(self.azure.control_api().delete(&format!("faults/{name}")))
    }

    /// Runs a request to completion.
    pub(super) fn block_on<T, E: std::error::Error>(
        &self,
        request: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Failed> {
        self.runtime.block_on(request).map_err(failed_with_causes)
    }

    /// Waits until a condition holds.
    pub(super) fn wait_until(
        &self,
        what: &str,
        mut condition: impl FnMut() -> Result<bool, Failed> + Send,
    ) -> Result<(), Failed> {
        // The condition blocks on the runtime itself.
        for _ in 0..MAX_POLLS {
            if condition()? {
                return Ok(());
            }
            self.runtime.block_on(sleep(POLL_INTERVAL));
        }
        Err(format!("condition did not hold: {what}").into())
    }

    /// Installs a minimal definition of NodePool, unless it is installed.
    pub(super) fn install_node_pools(&self) -> Result<(), Failed> {
        let definitions = Api::<CustomResourceDefinition>::all(self.client.clone());
        let name = "nodepools.hypershift.openshift.io";
        if self.block_on(definitions.get_opt(name))?.is_some() {
            return Ok(());
        }
        let definition: CustomResourceDefinition = serde_json::from_value(json!({
            "metadata": { "name": name },
            "spec": {
                "group": "hypershift.openshift.io",
                "names": { "kind": "NodePool", "plural": "nodepools", "singular": "nodepool", "listKind": "NodePoolList" },
                "scope": "Namespaced",
                "versions": [{
                    "name": "v1beta1", "served": true, "storage": true,
                    "schema": { "openAPIV3Schema": {
                        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    } },
                }],
            },
        }))?;
        self.block_on(install_definitions(&self.client, std::slice::from_ref(&definition)))
    }

    /// Removes the definition of HostedCluster, and waits until the API server does not serve the kind.
    pub(super) fn remove_hosted_cluster_kind(&self) -> Result<(), Failed> {
        let definitions = Api::<CustomResourceDefinition>::all(self.client.clone());
        let name = "hostedclusters.hypershift.openshift.io";
        self.block_on(definitions.delete(name, &DeleteParams::default()))?;
        self.wait_until("the kind is not served", || {
            let listed = self.runtime.block_on(self.hosted_clusters().list(&ListParams::default()));
            Ok(listed.is_err_and(|error| matches!(error, kube::Error::Api(it) if it.code == 404)))
        })
    }

    fn quotas(&self) -> Api<DynamicObject> {
        self.objects(&DynamicKind::from_names("", "v1", "ResourceQuota", "resourcequotas"))
    }

    /// Limits the number of new Secrets in the namespace of the cluster.
    pub(super) fn limit_secrets(&self, limit: u32) -> Result<(), Failed> {
        let hard = json!({ "secrets": limit.to_string() });
        let quota: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": { "name": QUOTA }, "spec": { "hard": hard },
        }))?;
        self.block_on(self.quotas().create(&PostParams::default(), &quota))?;
        // No controller manager runs that would set the status.
        let status = json!({ "status": { "hard": hard, "used": { "secrets": "0" } } });
        let (quotas, parameters) = (self.quotas(), PatchParams::default());
        self.block_on(quotas.patch_status(QUOTA, &parameters, &Patch::Merge(status)))?;
        Ok(())
    }

    /// Removes the limit of [`Self::limit_secrets`], and waits until it has no effect.
    pub(super) fn remove_limit(&self) -> Result<(), Failed> {
        self.block_on(self.quotas().delete(QUOTA, &DeleteParams::default()))?;
        self.wait_until("the quota is gone", || {
            Ok(self.block_on(self.quotas().get_opt(QUOTA))?.is_none())
        })
    }

    fn objects(&self, kind: &DynamicKind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), NAMESPACE, kind.api_resource())
    }

    /// The HostedClusters in the namespace of the cluster.
    pub(super) fn hosted_clusters(&self) -> Api<DynamicObject> {
        self.objects(&DynamicKind::hosted_cluster())
    }

    /// The HostedCluster; `None` if it does not exist.
    pub(super) fn hosted_cluster(&self) -> Result<Option<DynamicObject>, Failed> {
        self.block_on(self.hosted_clusters().get_opt(NAME))
    }

    /// A Secret; `None` if it does not exist.
    pub(super) fn secret(&self, name: &str) -> Result<Option<DynamicObject>, Failed> {
        let secrets = self.objects(&DynamicKind::from_names("", "v1", "Secret", "secrets"));
        self.block_on(secrets.get_opt(name))
    }

    /// Whether the namespace of the cluster exists.
    pub(super) fn namespace_exists(&self) -> Result<bool, Failed> {
        let kind = DynamicKind::from_names("", "v1", "Namespace", "namespaces");
        let namespaces = Api::<DynamicObject>::all_with(self.client.clone(), kind.api_resource());
        Ok(self.block_on(namespaces.get_opt(NAMESPACE))?.is_some())
    }

    /// The names and versions of the cluster's objects.
    pub(super) fn object_versions(&self) -> Result<Vec<(String, Option<String>)>, Failed> {
        let group = "hypershift.openshift.io";
        let kinds = [
            DynamicKind::from_names("", "v1", "Secret", "secrets"),
            DynamicKind::hosted_cluster(),
            DynamicKind::from_names(group, "v1beta1", "NodePool", "nodepools"),
        ];
        let labelled = ListParams::default().labels(&format!("{INFRA_LABEL}={INFRA_ID}"));
        let mut versions = Vec::new();
        for kind in &kinds {
            let listed = self.block_on(self.objects(kind).list(&labelled))?;
            versions.extend(listed.items.into_iter().map(|object| {
                let metadata = object.metadata;
                (metadata.name.unwrap_or_default(), metadata.resource_version)
            }));
        }
        Ok(versions)
    }

    /// The ids of all groups, resources and role assignments of the subscription.
    pub(super) fn azure_resources(&self) -> Result<BTreeSet<String>, Failed> {
        self.runtime.block_on(self.observer.resource_ids())
    }

    /// The virtual network of the management cluster, with its subnets.
    pub(super) fn management_network(&self) -> Result<Value, Failed> {
        self.runtime.block_on(self.observer.management_network())
    }

    /// Creates the public address of the default router, as the cloud provider of a running cluster does. Returns
    /// its id.
    pub(super) fn create_router_address(&self) -> Result<String, Failed> {
        let cluster = self.hosted_cluster()?.ok_or("the HostedCluster does not exist")?;
        let group = cluster.data.pointer("/spec/platform/azure/resourceGroup");
        let group = group.and_then(Value::as_str).ok_or("the HostedCluster has no group")?;
        self.runtime.block_on(self.observer.create_address(
            group,
            &json!({
                "k8s-azure-service": "openshift-ingress/router-default",
                "k8s-azure-cluster-name": INFRA_ID,
            }),
        ))
    }

    /// Deletes a resource as another tool would.
    pub(super) fn delete_resource(&self, id: &str) -> Result<(), Failed> {
        let gone = id.to_ascii_lowercase();
        self.runtime.block_on(async {
            self.observer.delete_address(id).await?;
            eventually("the resource is gone", async || {
                Ok(!self.observer.resource_ids().await?.contains(&gone))
            })
            .await
        })
    }

    /// Moves the journals away from the default location. Returns the directory of the cluster's journal.
    pub(super) fn move_journals(&self) -> Result<String, Failed> {
        fs::rename(self.files.path().join("state"), self.files.path().join(MOVED_JOURNALS))?;
        let subscription = self.observer.subscription();
        Ok(format!("{MOVED_JOURNALS}/lanyard/{subscription}/{INFRA_ID}"))
    }

    /// Moves the journals back to the default location.
    pub(super) fn return_journals(&self) -> Result<(), Failed> {
        let state = self.files.path().join("state");
        if state.exists() {
            return Err("the command used the default location of journals".into());
        }
        Ok(fs::rename(self.files.path().join(MOVED_JOURNALS), state)?)
    }

    /// Creates a resource group as another tool would.
    pub(super) fn create_group(&self, name: &str) -> Result<(), Failed> {
        self.runtime.block_on(self.observer.create_group(name))
    }

    /// Deletes a resource group as another tool would.
    pub(super) fn delete_group(&self, name: &str) -> Result<(), Failed> {
        self.runtime.block_on(async {
            self.observer.delete_group(name).await?;
            eventually("the group is gone", async || {
                let ids = self.observer.resource_ids().await?;
                Ok(!ids.iter().any(|id| id.ends_with(&format!("/resourcegroups/{name}"))))
            })
            .await
        })
    }
}

const MAX_POLLS: u32 = 4_000;
/// The directory of the journals while they are not in the default location.
const MOVED_JOURNALS: &str = "moved-journals";

impl HostedClusterNames {
    /// The names for trials that use only Azure Resource Manager.
    fn for_commands(example: &Value) -> Self {
        let text = |pointer: &str| {
            example.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let azure = |field: &str| text(&format!("/spec/platform/azure/{field}"));
        Self {
            subscription: azure("subscriptionID"),
            resource_group: azure("resourceGroup"),
            forbidden_resource_group: String::new(),
            vault_host: String::new(),
            vault_tenant: String::new(),
            component: String::new(),
            component_secret: String::new(),
        }
    }
}

/// The arguments that create the cluster.
pub(super) fn create_arguments() -> Vec<String> {
    let arguments = [
        "create",
        "cluster",
        "azure",
        "--name",
        NAME,
        "--namespace",
        NAMESPACE,
        "--infra-id",
        INFRA_ID,
        "--base-domain",
        BASE_DOMAIN,
        "--pull-secret",
        "pull-secret.json",
        "--generate-ssh",
        "--release-image",
        RELEASE_IMAGE,
        "--node-pool-replicas",
        "2",
        "--workload-identities-file",
        "iam.json",
        "--oidc-issuer-url",
        ISSUER,
        "--sa-token-issuer-private-key-path",
        "signer.private",
        "--auto-assign-roles",
        "--dns-zone-rg-name",
        DNS_GROUP,
        "--output",
        "json",
    ];
    arguments.map(str::to_owned).to_vec()
}

/// The arguments that create the infrastructure of a cluster with managed identities.
pub(super) fn create_infra_arguments() -> Vec<String> {
    let arguments = [
        ["create", "infra", "azure", "--output-file"].as_slice(),
        &["infra.yaml", "--name", NAME, "--infra-id", INFRA_ID, "--base-domain", BASE_DOMAIN],
        &["--managed-identities-file", "control-plane.json"],
        &["--data-plane-identities-file", "workers.json", "--output", "json"],
    ];
    arguments.concat().into_iter().map(str::to_owned).collect()
}

/// The arguments that create the cluster from the infrastructure output.
pub(super) fn create_from_file_arguments(flags: &[&str]) -> Vec<String> {
    let arguments = [
        ["create", "cluster", "azure", "--name", NAME, "--namespace", NAMESPACE].as_slice(),
        &["--infra-json", "infra.yaml", "--pull-secret", "pull-secret.json"],
        &["--release-image", RELEASE_IMAGE, "--output", "json"],
        flags,
    ];
    arguments.concat().into_iter().map(str::to_owned).collect()
}

/// The arguments that remove the cluster.
pub(super) fn destroy_arguments(flags: &[&str]) -> Vec<String> {
    let arguments = [
        "destroy",
        "cluster",
        "azure",
        "--name",
        NAME,
        "--namespace",
        NAMESPACE,
        "--infra-id",
        INFRA_ID,
        "--dns-zone-rg-name",
        DNS_GROUP,
        "--output",
        "json",
    ];
    arguments.iter().chain(flags).map(|text| (*text).to_owned()).collect()
}

/// The arguments without `--infra-id` and its value.
pub(super) fn without_infra_id(arguments: &[String]) -> Vec<String> {
    let mut arguments = arguments.to_vec();
    if let Some(position) = arguments.iter().position(|it| it == "--infra-id") {
        arguments.drain(position..position + 2);
    }
    arguments
}
