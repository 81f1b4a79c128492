//! Runs `lanyard azure settings`, `fault` and `drill` against a served local Azure.

#![cfg(all(feature = "cli", feature = "emulator"))]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::process::{Command, Output};

use azure_core::credentials::TokenCredential as _;
use lanyard_azure::CallerIdentity;
use lanyard_credential::{
    ManagedIdentityCredential, ManagedIdentitySettings, TokenTransportOptions,
};
use lanyard_vocabulary::format_error_chain;
use serde_json::{Value, json};
use tempfile::TempDir;

#[path = "azure/azure_serve_process.rs"]
mod azure_serve_process;

use azure_serve_process::AzureServeProcess;

/// The vault of the example HostedCluster.
const VAULT: &str = "harbour-identities.vault.azure.net";

fn lanyard_command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lanyard"));
    for variable in ["HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "LANYARD_AZURE_CONTROL"]
    {
        command.env_remove(variable);
    }
    command
}

fn utf8(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A local Azure, and a directory for files.
struct ServedAzure {
    process: AzureServeProcess,
    state: TempDir,
    files: TempDir,
}

impl ServedAzure {
    fn start() -> Self {
        let (state, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let process = AzureServeProcess::start(lanyard_command(), state.path());
        Self { process, state, files }
    }

    /// Runs a subcommand of `lanyard azure` in the directory of the files.
    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = lanyard_command();
        command.arg("azure").args(arguments).arg("--state").arg(self.state.path());
        command.current_dir(self.files.path()).output().unwrap()
    }

    /// The output of a successful subcommand.
    fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", utf8(&output.stderr));
        utf8(&output.stdout)
    }

    /// The exit code and the error output of a subcommand that fails.
    fn fail(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.run(arguments);
        assert!(!output.status.success(), "{arguments:?}: {}", utf8(&output.stdout));
        (output.status.code(), utf8(&output.stderr))
    }

    fn settings(&self) -> Value {
        serde_json::from_str(&self.succeed(&["settings", "get", "--output", "json"])).unwrap()
    }

    fn write_file(&self, name: &str, content: &Value) {
        std::fs::write(self.files.path().join(name), content.to_string()).unwrap();
    }

    /// The status of a request to a URL of Azure through the proxy, without a token.
    async fn status_of(&self, url: &str) -> u16 {
        let authority = std::fs::read(self.process.session_text("caFile")).unwrap();
        let client = reqwest::Client::builder()
            .proxy(reqwest::Proxy::all(self.process.session_text("proxy")).unwrap())
            .tls_certs_only([reqwest::Certificate::from_pem(&authority).unwrap()])
            .build()
            .unwrap();
        client.get(url).send().await.unwrap().status().as_u16()
    }

    /// Creates a node of the metadata service, and returns its description.
    async fn create_node(&self, name: &str, node: &Value) -> Value {
        let url = format!("{}/nodes/{name}", self.process.session_text("control"));
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let request = client.put(url).header("x-lanyard-control", "1").body(node.to_string());
        let reply = request.send().await.unwrap();
        assert_eq!(reply.status().as_u16(), 201);
        serde_json::from_str(&reply.text().await.unwrap()).unwrap()
    }

    /// The caller of a token from the metadata service that `lanyard azure env` prints, with further flags.
    async fn metadata_caller(&self, flags: &[&str]) -> azure_core::Result<CallerIdentity> {
        let printed = self.succeed(&[&["env", "--output", "json"], flags].concat());
        let printed: Value = serde_json::from_str(&printed).unwrap();
        let host = printed["set"]["AZURE_POD_IDENTITY_AUTHORITY_HOST"].as_str().unwrap();
        let mut settings = ManagedIdentitySettings::default();
        settings.imds_host = Some(host.to_owned());
        let options = TokenTransportOptions::default();
        let credential = ManagedIdentityCredential::new(settings, options).unwrap();
        let token = credential.get_token(&["https://management.azure.com/.default"], None).await?;
        Ok(CallerIdentity::of_token(token.token.secret()).unwrap())
    }
}

#[test]
fn settings_are_printed_in_every_format_and_changed_by_field_and_file() {
    let azure = ServedAzure::start();
    let initial = azure.settings();
    assert_eq!(initial["resourceManager"]["pageSize"], Value::Null);
    assert_eq!(initial["roleAssignmentLimits"]["inSubscription"], 4_000);
    let yaml = azure.succeed(&["settings", "get", "-o", "yaml"]);
    assert!(yaml.contains("roleAssignmentLimits:\n"), "{yaml}");
    assert!(yaml.contains("  atManagementGroup: 500\n"), "{yaml}");
    let table = azure.succeed(&["settings", "get"]);
    let mut rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    assert!(rows.any(|row| row == ["roleAssignmentLimits.atManagementGroup", "500"]), "{table}");

    let fields = [
        "resourceManager.pageSize=2",
        "propagation.directory.graphDeletionSeconds=30",
        "resourceManager.unregisteredNamespaces=[\"Microsoft.Network\"]",
    ];
    let printed = azure.succeed(&[&["settings", "set", "-o", "json"], &fields[..]].concat());
    let changed: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(changed["resourceManager"]["pageSize"], 2);
    assert_eq!(changed["propagation"]["directory"]["graphDeletionSeconds"], 30);
    let namespaces = &changed["resourceManager"]["unregisteredNamespaces"];
    assert_eq!(namespaces, &json!(["microsoft.network"]));
    assert_eq!(azure.settings(), changed);

    azure.write_file("reset.json", &json!({ "propagation": null, "resourceManager": null }));
    azure.succeed(&["settings", "set", "--file", "reset.json", "tokens.applicationSeconds=60"]);
    let reset = azure.settings();
    assert_eq!(reset["resourceManager"], initial["resourceManager"]);
    assert_eq!(reset["propagation"], initial["propagation"]);
    assert_eq!(reset["tokens"]["applicationSeconds"], 60);
}

#[test]
fn invalid_setting_is_named_and_changes_nothing() {
    let azure = ServedAzure::start();
    let initial = azure.settings();
    for (field, named) in [
        (
            "resourceManager.pagesize=1",
            "`resourceManager`: unknown field, expected one of `pageSize`",
        ),
        ("resourceManager.pageSize=0", "`resourceManager.pageSize`: expected a nonzero"),
        ("roleAssignmentLimits.inSubscription=-1", "`roleAssignmentLimits.inSubscription`"),
        (
            "resourceManager.unregisteredNamespaces=[\"X.Y\"]",
            "`resourceManager.unregisteredNamespaces`",
        ),
        ("propagation.directory", "propagation.directory"),
        ("resourceManager.kubeconfig=@absent.yaml", "absent.yaml"),
    ] {
        let (code, error) = azure.fail(&["settings", "set", field]);
        assert_eq!(code, Some(2), "{field}: {error}");
        assert!(error.contains(named), "{field}: {error}");
    }
    assert_eq!(azure.settings(), initial);
}

#[test]
fn help_of_settings_lists_every_field() {
    for command in ["get", "set"] {
        let output = lanyard_command().args(["azure", "settings", command, "--help"]).output();
        let help = utf8(&output.unwrap().stdout);
        for field in lanyard_emulator::setting_fields() {
            assert!(help.contains(&format!("\n  {}\n", field.path)), "{}: {help}", field.path);
        }
    }
}

#[tokio::test]
async fn fault_rule_affects_requests_until_it_is_removed() {
    let azure = ServedAzure::start();
    let url = format!("https://{VAULT}/secrets/harbour-disk?api-version=7.5");
    assert_eq!(azure.status_of(&url).await, 401);
    assert!(azure.succeed(&["fault", "list"]).contains("0 fault rules"));

    let outage = json!({
        "name": "outage", "host": VAULT, "effect": { "type": "status", "status": 503 },
    });
    let slow = json!({
        "name": "slow", "service": "arm", "times": 7,
        "effect": { "type": "latency", "milliseconds": 1 },
    });
    azure.write_file("outage.json", &outage);
    azure.write_file("list.json", &json!([slow]));
    let added = azure.succeed(&["fault", "add", "outage.json", "list.json"]);
    assert_eq!(added, "added outage\nadded slow\n");
    assert_eq!(azure.status_of(&url).await, 503);

    let table = azure.succeed(&["fault", "list"]);
    for cell in ["outage", VAULT, "slow", "arm", " 7 ", "latency", "2 fault rules"] {
        assert!(table.contains(cell), "{cell} is not in\n{table}");
    }
    let rules: Value =
        serde_json::from_str(&azure.succeed(&["fault", "list", "-o", "json"])).unwrap();
    assert_eq!((&rules[0]["name"], &rules[1]["times"]), (&json!("outage"), &json!(7)));
    assert!(azure.succeed(&["fault", "list", "-o", "yaml"]).contains("name: outage\n"));

    assert_eq!(azure.succeed(&["fault", "remove", "outage"]), "removed outage\n");
    assert_eq!(azure.status_of(&url).await, 401);
    let (code, error) = azure.fail(&["fault", "remove", "outage"]);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("`outage`"), "{error}");
    azure.succeed(&["fault", "remove", "--all"]);
    assert!(azure.succeed(&["fault", "list"]).contains("0 fault rules"));
}

#[tokio::test]
async fn printed_variables_of_a_node_lead_to_its_identity() {
    let azure = ServedAzure::start();
    let own = azure.create_node("own", &json!({ "systemAssigned": true })).await;
    let own = own["systemAssignedClientId"].as_str().unwrap().to_owned();
    azure.create_node("empty", &json!({})).await;
    let caller = azure.metadata_caller(&["--node", "own"]).await.unwrap();
    assert!(caller.creator_names.contains(&own), "{caller:?}");
    // Without a node, the default node answers.
    let other = azure.metadata_caller(&[]).await.unwrap();
    assert_ne!(other.object_id, caller.object_id);
    let error = azure.metadata_caller(&["--node", "empty"]).await.unwrap_err();
    let text = format_error_chain(&error);
    assert!(text.contains("Identity not found"), "{text}");
}

#[test]
fn invalid_fault_rule_is_rejected_with_the_field_and_its_form() {
    let azure = ServedAzure::start();
    let tunnel = json!({ "type": "half-closed-tunnel" });
    for (rule, named) in [
        (json!({ "name": "x", "hosts": "h", "effect": { "type": "reset" } }), "unknown field"),
        (json!({ "name": "x", "every": 0, "effect": { "type": "reset" } }), "every"),
        (json!({ "name": "x", "path": "/a", "effect": tunnel }), "path"),
        (json!({ "name": "x" }), "effect"),
    ] {
        azure.write_file("rule.json", &rule);
        let (code, error) = azure.fail(&["fault", "add", "rule.json"]);
        assert_eq!(code, Some(2), "{rule}: {error}");
        assert!(error.contains(named), "{rule}: {error}");
    }
    assert!(azure.succeed(&["fault", "list"]).contains("0 fault rules"));
}

#[tokio::test]
async fn drill_affects_requests_until_it_is_stopped() {
    let azure = ServedAzure::start();
    let url = format!("https://{VAULT}/secrets/harbour-disk?api-version=7.5");
    let list = |format| azure.succeed(&["drill", "list", "--output", format]);
    let table = list("table");
    assert!(table.starts_with("DRILL "), "{table}");
    assert!(table.ends_with("\nno drill is running\n"), "{table}");
    assert!(list("yaml").contains("name: kv-throttled-at-boot\n"));
    let document = || serde_json::from_str::<Value>(&list("json")).unwrap();
    let listed = document();
    assert_eq!(listed["running"], Value::Null);
    for fault_drill in listed["drills"].as_array().unwrap() {
        assert!(table.contains(fault_drill["name"].as_str().unwrap()), "{fault_drill}");
    }

    let started = azure.succeed(&["drill", "start", "kv-throttled-at-boot"]);
    assert_eq!(started, "started kv-throttled-at-boot\n");
    assert_eq!(document()["running"]["name"], "kv-throttled-at-boot");
    let mut statuses = Vec::new();
    for _ in 0..10 {
        statuses.push(azure.status_of(&url).await);
    }
    assert_eq!(statuses[..3], [401; 3], "the first three requests");
    assert!(statuses.contains(&429), "{statuses:?}");
    let (code, error) = azure.fail(&["drill", "start", "kv-throttled-at-boot"]);
    assert_eq!(code, Some(3), "one drill runs at a time: {error}");
    assert!(error.contains("kv-throttled-at-boot"), "{error}");

    assert_eq!(azure.succeed(&["drill", "stop"]), "stopped kv-throttled-at-boot\n");
    assert_eq!(azure.status_of(&url).await, 401);
    assert_eq!(azure.fail(&["drill", "stop"]).0, Some(2));
    let (code, error) = azure.fail(&["drill", "start", "no-such-drill"]);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("no-such-drill"), "{error}");

    azure.write_file(
        "own.json",
        &json!({ "name": "own", "settings": { "resourceManager": { "pageSize": 3 } } }),
    );
    assert_eq!(azure.succeed(&["drill", "start", "own.json"]), "started own\n");
    assert_eq!(azure.settings()["resourceManager"]["pageSize"], 3);
    azure.succeed(&["drill", "stop"]);
    assert_eq!(azure.settings()["resourceManager"]["pageSize"], Value::Null);
}

#[test]
fn drills_are_listed_when_the_local_azure_of_the_shell_has_ended() {
    // Nothing answers at the port of this socket, and no other test can take it.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let address = socket.local_addr().unwrap();
    let mut command = lanyard_command();
    command.env("LANYARD_AZURE_CONTROL", format!("http://{address}/lanyard/v1"));
    let output = command.args(["azure", "drill", "list"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", utf8(&output.stderr));
    assert!(utf8(&output.stdout).starts_with("DRILL "));
}

#[test]
fn commands_without_a_local_azure_say_how_to_start_one() {
    let directory = tempfile::tempdir().unwrap();
    for arguments in [["settings", "get"], ["fault", "list"], ["drill", "stop"]] {
        let mut command = lanyard_command();
        command.arg("azure").args(arguments).arg("--state").arg(directory.path());
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{arguments:?}");
        assert!(utf8(&output.stderr).contains("lanyard azure serve"), "{arguments:?}");
    }
}

#[test]
fn partial_operation_is_listed_with_its_note() {
    let output = lanyard_command().args(["azure", "operations", "--service", "blob"]).output();
    let table = utf8(&output.unwrap().stdout);
    let row = table.lines().find(|row| row.contains("BlockBlob_Upload")).unwrap_or(&table);
    assert!(row.contains("partial") && row.contains("block blobs of at most 256 MiB"), "{row}");
}
