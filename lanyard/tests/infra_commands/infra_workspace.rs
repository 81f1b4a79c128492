//! A directory with the files of one cluster, and a local Azure in its own process.

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lanyard_clock::SystemClock;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::azure_serve_process::AzureServeProcess;

const CLUSTER: &str = "
name: harbour2
infraId: harbour2-x7k2p
iam:
  resourceGroupName: harbour2-identities
  oidcIssuerUrl: https://account.blob.core.windows.net/container
infra:
  baseDomain: hcp.example.com
  assignIdentityRoles: true
  dnsZoneResourceGroupName: lanyard-dns
";
/// The header that the control API requires of writes.
const CONTROL_HEADER: &str = "x-lanyard-control";
const MAIN_GROUP: &str = "harbour2-harbour2-x7k2p";

/// Where a process is killed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum KillPosition {
    /// Azure has not received the request.
    BeforeRequest,
    /// Azure has handled the request, and the reply has not arrived.
    AfterRequest,
}

/// A local Azure, and a directory in which commands run.
pub(crate) struct InfraWorkspace {
    process: AzureServeProcess,
    state: TempDir,
    files: TempDir,
    environment: Vec<(String, String)>,
    azure: reqwest::Client,
    control: reqwest::Client,
    runtime: tokio::runtime::Runtime,
}

impl InfraWorkspace {
    pub(crate) fn start() -> Self {
        Self::start_for(include_str!("../../../examples/hostedcluster.yaml"))
    }

    /// Starts a local Azure that is seeded for a HostedCluster.
    pub(crate) fn start_for(hosted_cluster: &str) -> Self {
        let (state, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let seed = files.path().join("seed.yaml");
        std::fs::write(&seed, hosted_cluster).unwrap();
        let flags = ["--login=service-principal", "--file", seed.to_str().unwrap()];
        let process = AzureServeProcess::start_with(lanyard(), state.path(), &flags);
        std::fs::write(files.path().join("cluster.yaml"), CLUSTER).unwrap();
        let authority = std::fs::read(process.session_text("caFile")).unwrap();
        let azure = reqwest::Client::builder()
            .proxy(reqwest::Proxy::all(process.session_text("proxy")).unwrap())
            .tls_certs_only([reqwest::Certificate::from_pem(&authority).unwrap()])
            .build()
            .unwrap();
        let environment = exported_environment(state.path());
        let control = reqwest::Client::builder().no_proxy().build().unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        Self { process, state, files, environment, azure, control, runtime }
    }

    fn command(&self, arguments: &[impl AsRef<str>]) -> Command {
        let mut command = lanyard();
        command.args(arguments.iter().map(AsRef::as_ref)).current_dir(self.files.path());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.env("XDG_STATE_HOME", self.files.path().join("state"));
        command
    }

    /// A command without a terminal.
    pub(crate) fn piped_command(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(arguments);
        command.stdin(Stdio::null()).env_remove("COLUMNS").env_remove("NO_COLOR");
        command
    }

    /// Ends the local Azure, and runs `lanyard up` with its state and a HostedCluster. Returns the exit code, the
    /// report and the error output.
    pub(crate) fn run_up(self, hosted_cluster: &str) -> (Option<i32>, Value, String) {
        std::fs::write(self.files.path().join("hostedcluster.yaml"), hosted_cluster).unwrap();
        drop(self.process);
        let mut command = lanyard();
        command.current_dir(self.files.path()).args(["up", "--once", "--output", "json"]);
        command.args(["--file", "hostedcluster.yaml", "--state"]).arg(self.state.path());
        let output = command.output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        let report = serde_json::from_slice(&output.stdout).unwrap_or_default();
        (output.status.code(), report, error)
    }

    /// The exit code and the error output of a command.
    pub(crate) fn run(&self, arguments: &[impl AsRef<str>]) -> (Option<i32>, String) {
        let output = self.command(arguments).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }

    /// The JSON output of a command that succeeds.
    pub(crate) fn succeed_json(&self, arguments: &[impl AsRef<str>]) -> Value {
        let output = self.command(arguments).args(["--output", "json"]).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{text}{error}");
        serde_json::from_str(&text).unwrap()
    }

    /// The arguments with the flags that name the cluster.
    pub(crate) fn cluster_arguments(arguments: &[&str]) -> Vec<String> {
        let cluster = ["--name", "harbour2", "--infra-id", "harbour2-x7k2p"];
        arguments.iter().chain(&cluster).map(|text| (*text).to_owned()).collect()
    }

    /// The directory in which commands run.
    pub(crate) fn files(&self) -> &std::path::Path {
        self.files.path()
    }

    /// A command with other variables than those of `lanyard azure env`; `None` removes a variable.
    pub(crate) fn run_with(
        &self,
        arguments: &[&str],
        variables: &[(&str, Option<&str>)],
    ) -> (Option<i32>, String) {
        let mut command = self.command(arguments);
        for (name, value) in variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }

    /// Sends a request to the control API of the local Azure.
    pub(crate) fn control(
        &self,
        method: reqwest::Method,
        path: &str,
        body: Option<Value>,
    ) -> Value {
        let url = format!("{}/{path}", self.process.session_text("control"));
        let request = self.control.request(method, &url).header(CONTROL_HEADER, "1");
        let request = match body {
            Some(body) => request.body(body.to_string()),
            None => request,
        };
        self.runtime.block_on(async {
            let reply = request.send().await.unwrap();
            let status = reply.status();
            let text = reply.text().await.unwrap();
            assert!(status.is_success(), "{url}: {text}");
            serde_json::from_str(&text).unwrap_or_default()
        })
    }

    /// Sends a request to Azure Resource Manager with a path below the subscription.
    pub(crate) fn resource_request(
        &self,
        method: reqwest::Method,
        path: &str,
        body: Option<Value>,
    ) -> Value {
        self.runtime.block_on(self.arm(method, path, body))
    }

    /// The text of a URL that clients without a credential may read.
    pub(crate) fn read_anonymously(&self, url: &str) -> String {
        self.runtime.block_on(async {
            let reply = self.azure.get(url).send().await.unwrap();
            assert!(reply.status().is_success(), "{url}: {}", reply.status());
            reply.text().await.unwrap()
        })
    }

    pub(crate) fn read_file(&self, name: &str) -> String {
        std::fs::read_to_string(self.files.path().join(name)).unwrap()
    }

    /// Writes a workload identities file, whose identities no test uses.
    pub(crate) fn write_identities(&self) {
        let components = [
            "imageRegistry",
            "ingress",
            "file",
            "disk",
            "nodePoolManagement",
            "cloudProvider",
            "network",
            "controlPlaneOperator",
        ];
        let identity = json!({ "clientID": "11111111-1111-1111-1111-111111111111" });
        let file: Value = components
            .iter()
            .map(|name| ((*name).to_owned(), identity.clone()))
            .collect::<serde_json::Map<_, _>>()
            .into();
        std::fs::write(self.files.path().join("iam.json"), file.to_string()).unwrap();
    }

    /// Creates a container in the seeded storage account, for which the commands get a role. Returns its URL.
    pub(crate) fn create_container(&self) -> String {
        self.runtime.block_on(async {
            let get = reqwest::Method::GET;
            let listed = self.arm(get, "/resources?api-version=2021-04-01", None).await;
            let is_account = |it: &&Value| it["type"] == "Microsoft.Storage/storageAccounts";
            let account = listed["value"].as_array().unwrap().iter().find(is_account).unwrap();
            let id = account["id"].as_str().unwrap();
            let account = &id[id.find("/resourceGroups/").unwrap()..];
            let path = format!(
                "{account}/blobServices/default/containers/journals?api-version=2024-01-01"
            );
            self.arm(reqwest::Method::PUT, &path, Some(json!({}))).await;
            let token = self.token("https://management.azure.com/.default").await;
            let caller = lanyard_azure::CallerIdentity::of_token(&token).unwrap().object_id;
            let subscription = self.variable("AZURE_SUBSCRIPTION_ID");
            let roles = "providers/Microsoft.Authorization/roleDefinitions";
            let body = json!({ "properties": {
                "roleDefinitionId":
                    format!("/subscriptions/{subscription}/{roles}/ba92f5b4-2d11-453d-a403-e96b0029c9fe"),
                "principalId": caller, "principalType": "ServicePrincipal",
            } });
            let path = format!(
                "{account}/providers/Microsoft.Authorization/roleAssignments/{}?api-version=2022-04-01",
                uuid::Uuid::from_u128(7)
            );
            self.arm(reqwest::Method::PUT, &path, Some(body)).await;
            let name = account.rsplit('/').next().unwrap();
            format!("https://{name}.blob.core.windows.net/journals/team")
        })
    }

    /// Advances the time of the local Azure.
    pub(crate) fn advance_clock(&self, seconds: u32) {
        self.control(reqwest::Method::POST, "clock", Some(json!({ "advanceSeconds": seconds })));
    }

    /// Runs `work` while a command waits for the reply to a request to a service, counted from 0, and then kills
    /// the command. `work` gets the id of its process.
    pub(crate) fn while_held_at(
        &self,
        arguments: &[impl AsRef<str>],
        (service, request): (&str, u32),
        work: impl FnOnce(u32),
    ) {
        let faults = self.add_kill_rule(service, request, KillPosition::AfterRequest);
        let mut command = self.command(arguments);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let held = self.runtime.block_on(self.wait_until_hit(&mut child, &faults));
        assert!(held, "the command ended before the request");
        work(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        self.remove_kill_rule(&faults);
    }

    /// Changes settings of the local Azure.
    pub(crate) fn change_settings(&self, change: Value) {
        self.control(reqwest::Method::PATCH, "settings", Some(change));
    }

    /// The number of the newest request in the log.
    pub(crate) fn request_count(&self) -> u64 {
        let log = self.control(reqwest::Method::GET, "request-log", None);
        log["value"].as_array().unwrap().last().map_or(0, |it| it["sequence"].as_u64().unwrap())
    }

    /// The writes to Azure Resource Manager, Microsoft Graph, vaults and storage accounts after a request. Checks of
    /// names are no writes.
    pub(crate) fn writes_since(&self, sequence: u64) -> Vec<String> {
        let path = format!("request-log?since={sequence}");
        let log = self.control(reqwest::Method::GET, &path, None);
        let is_write = |entry: &&Value| {
            let reads = ["GET", "HEAD", "CONNECT", "TLS"];
            !reads.iter().any(|method| entry["method"] == *method)
                && entry["service"] != "entra"
                && !entry["path"].as_str().unwrap().ends_with("/checkNameAvailability")
        };
        let text = |entry: &Value| format!("{} {}", entry["method"], entry["path"]);
        log["value"].as_array().unwrap().iter().filter(is_write).map(text).collect()
    }

    /// The ids of the managed identities in a group.
    pub(crate) fn identities(&self, group: &str) -> Vec<String> {
        let path = format!(
            "/resourceGroups/{group}/providers/Microsoft.ManagedIdentity/userAssignedIdentities?api-version=2024-11-30"
        );
        let listed = self.runtime.block_on(self.arm(reqwest::Method::GET, &path, None));
        let items = listed["value"].as_array().unwrap().iter();
        items.map(|it| it["id"].as_str().unwrap().to_owned()).collect()
    }

    /// Deletes a credential of an identity, and creates credentials of another issuer until it has 20.
    pub(crate) fn replace_credential(&self, identity: &str) {
        let path = identity.split_once("/resourceGroups/").unwrap().1;
        let credential = |name: &str| {
            format!(
                "/resourceGroups/{path}/federatedIdentityCredentials{name}?api-version=2024-11-30"
            )
        };
        let send = |method, name: &str, body| {
            self.runtime.block_on(self.arm(method, &credential(name), body))
        };
        let listed = send(reqwest::Method::GET, "", None);
        let listed = listed["value"].as_array().unwrap();
        let first = format!("/{}", listed[0]["name"].as_str().unwrap());
        send(reqwest::Method::DELETE, &first, None);
        for number in listed.len() - 1..20 {
            let body = json!({ "properties": {
                "issuer": "https://other.example.com",
                "subject": format!("system:serviceaccount:other:{number}"),
                "audiences": ["openshift"],
            } });
            send(reqwest::Method::PUT, &format!("/other-{number}"), Some(body));
        }
    }

    /// Removes the journals.
    pub(crate) fn forget_journal(&self) {
        std::fs::remove_dir_all(self.files.path().join("state")).unwrap();
    }

    /// Starts a command and kills it at a request to a service such as `arm`, counted from 0. Returns whether the
    /// command sent that many requests.
    pub(crate) fn kill_at(
        &self,
        arguments: &[String],
        service: &str,
        request: u32,
        position: KillPosition,
    ) -> bool {
        let faults = self.add_kill_rule(service, request, position);
        let mut command = self.command(arguments);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let killed = self.runtime.block_on(self.wait_until_hit(&mut child, &faults));
        if killed {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        self.remove_kill_rule(&faults);
        killed
    }

    /// Adds a rule that holds a request. Returns the URL of the rules.
    fn add_kill_rule(&self, service: &str, request: u32, position: KillPosition) -> String {
        let effect = match position {
            KillPosition::BeforeRequest => json!({ "type": "reset", "hold": 600_000 }),
            KillPosition::AfterRequest => json!({ "type": "latency", "milliseconds": 600_000 }),
        };
        let rule = json!({
            "name": "kill", "service": service, "after": request, "times": 1, "effect": effect,
        });
        let faults = format!("{}/faults", self.process.session_text("control"));
        self.runtime.block_on(async {
            let added = self
                .control
                .post(&faults)
                .header(CONTROL_HEADER, "1")
                .body(rule.to_string())
                .send()
                .await
                .unwrap();
            assert!(added.status().is_success(), "{}", added.text().await.unwrap());
        });
        faults
    }

    fn remove_kill_rule(&self, faults: &str) {
        self.runtime.block_on(async {
            self.control
                .delete(format!("{faults}/kill"))
                .header(CONTROL_HEADER, "1")
                .send()
                .await
                .unwrap();
        });
    }

    /// Waits until the rule has hit or the process has ended. Returns whether the rule has hit.
    async fn wait_until_hit(&self, child: &mut Child, faults: &str) -> bool {
        let clock = SystemClock::shared();
        loop {
            if child.try_wait().unwrap().is_some() {
                return false;
            }
            let rules = self
                .control
                .get(faults)
                .header(CONTROL_HEADER, "1")
                .send()
                .await
                .unwrap()
                .text()
                .await
                .unwrap();
            let rules: Value = serde_json::from_str(&rules).unwrap();
            let waiting = rules["value"]
                .as_array()
                .unwrap()
                .iter()
                .any(|rule| rule["name"] == "kill" && rule["times"].as_u64() != Some(0));
            if !waiting {
                return true;
            }
            clock.sleep(Duration::from_millis(5)).await;
        }
    }

    fn subscription(&self) -> String {
        let found = self.environment.iter().find(|(name, _)| name == "AZURE_SUBSCRIPTION_ID");
        format!("https://management.azure.com/subscriptions/{}", found.unwrap().1)
    }

    async fn arm(&self, method: reqwest::Method, path: &str, body: Option<Value>) -> Value {
        let url = format!("{}{path}", self.subscription());
        self.azure_request("https://management.azure.com/.default", method, &url, body).await
    }

    /// A variable that `lanyard azure env` exports.
    pub(crate) fn variable(&self, name: &str) -> String {
        self.environment.iter().find(|(found, _)| found == name).unwrap().1.clone()
    }

    /// The HTTP client that reaches the local Azure.
    pub(crate) const fn client(&self) -> &reqwest::Client {
        &self.azure
    }

    /// A token of the seeded application for `scope`.
    async fn token(&self, scope: &str) -> String {
        let form = [
            ("client_id", self.variable("AZURE_CLIENT_ID")),
            ("client_secret", self.variable("AZURE_CLIENT_SECRET")),
            ("grant_type", "client_credentials".to_owned()),
            ("scope", scope.to_owned()),
        ];
        let tenant = self.variable("AZURE_TENANT_ID");
        let token_url = format!("https://login.microsoftonline.com/{tenant}/oauth2/v2.0/token");
        let form = form.map(|(name, value)| format!("{name}={value}")).join("&");
        let request =
            self.azure.post(token_url).header("content-type", "application/x-www-form-urlencoded");
        let reply = request.body(form).send().await.unwrap().text().await.unwrap();
        let reply: Value = serde_json::from_str(&reply).unwrap();
        reply["access_token"].as_str().unwrap().to_owned()
    }

    /// Sends a request with a token for `scope`.
    pub(crate) async fn azure_request(
        &self,
        scope: &str,
        method: reqwest::Method,
        url: &str,
        body: Option<Value>,
    ) -> Value {
        let token = self.token(scope).await;
        let request = self.azure.request(method, url).bearer_auth(token);
        let request = match body {
            Some(body) => request.header("content-type", "application/json").body(body.to_string()),
            None => request,
        };
        let reply = request.send().await.unwrap();
        assert!(reply.status().is_success(), "{url}: {}", reply.status());
        serde_json::from_str(&reply.text().await.unwrap()).unwrap_or_default()
    }

    /// The ids of all groups, resources and role assignments of the subscription, in lower case.
    pub(crate) fn resource_ids(&self) -> BTreeSet<String> {
        let mut ids = BTreeSet::new();
        for path in [
            "/resources?api-version=2021-04-01",
            "/resourcegroups?api-version=2021-04-01",
            "/providers/Microsoft.Authorization/roleAssignments?api-version=2022-04-01",
        ] {
            let listed = self.runtime.block_on(self.arm(reqwest::Method::GET, path, None));
            let values = listed["value"].as_array().unwrap();
            ids.extend(values.iter().map(|it| it["id"].as_str().unwrap().to_ascii_lowercase()));
        }
        ids
    }

    /// Removes the link of the private DNS zone to the virtual network.
    pub(crate) fn delete_vnet_link(&self) {
        let path = format!(
            "/resourceGroups/{MAIN_GROUP}/providers/Microsoft.Network/privateDnsZones/harbour2.hcp.example.com/virtualNetworkLinks/{MAIN_GROUP}?api-version=2024-06-01"
        );
        self.runtime.block_on(self.arm(reqwest::Method::DELETE, &path, None));
    }

    /// The object id of a user-assigned identity.
    pub(crate) fn identity_object_id(&self, group: &str, name: &str) -> String {
        let path = format!(
            "/resourceGroups/{group}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/{name}?api-version=2024-11-30"
        );
        let identity = self.runtime.block_on(self.arm(reqwest::Method::GET, &path, None));
        identity["properties"]["principalId"].as_str().unwrap().to_owned()
    }

    /// Creates a public IP address in a group of the cluster, as another tool would.
    pub(crate) fn put_foreign_address(&self) {
        let path = format!(
            "/resourceGroups/{MAIN_GROUP}/providers/Microsoft.Network/publicIPAddresses/foreign?api-version=2023-11-01"
        );
        let body = json!({
            "location": "eastus", "sku": { "name": "Standard" },
            "properties": { "publicIPAllocationMethod": "Static" },
        });
        self.runtime.block_on(self.arm(reqwest::Method::PUT, &path, Some(body)));
    }
}

fn lanyard() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lanyard"));
    for variable in ["HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "LANYARD_AZURE_CONTROL"]
    {
        command.env_remove(variable);
    }
    // Snapshots contain ids, which must be the same in each run.
    command.env("LANYARD_AZURE_SEED", "tests");
    command
}

/// The variables that `lanyard azure env` exports.
fn exported_environment(state: &std::path::Path) -> Vec<(String, String)> {
    let mut command = lanyard();
    let output = command.args(["azure", "env", "--output", "json", "--state"]).arg(state).output();
    let exports: Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
    let variables = exports["set"].as_object().unwrap().iter();
    let texts =
        variables.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
    texts.collect()
}
