//! Tests policies, audit trails and identities of the `lanyard node` binary: a driver mounts over
//! `azure.sock`, the local Azure responds, and the policy that is suggested from the audit trail allows the
//! recorded reads.

#![cfg(all(feature = "node", feature = "emulator"))]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use lanyard_clock::{Clock as _, SystemClock};
use lanyard_grpc::provider::csi_driver_provider_client::CsiDriverProviderClient;
use lanyard_grpc::provider::{MountRequest, MountResponse};
use serde_json::{Value, json};
use tonic::{Code, Status};

#[path = "azure/azure_serve_process.rs"]
mod azure_serve_process;

use azure_serve_process::AzureServeProcess;

/// Kills its process when it is dropped.
struct ChildProcessGuard(Child);

impl Drop for ChildProcessGuard {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// A local Azure with its control API.
struct PolicyTestAzure(AzureServeProcess);

impl PolicyTestAzure {
    fn start(state: &Path) -> Self {
        Self(AzureServeProcess::start(lanyard_command(), state))
    }

    /// Sends a GET request to the control API.
    fn get_control(&self, path: &str) -> Value {
        self.control_request("GET", path, "")
    }

    /// Sends a POST request to the control API.
    fn post_control(&self, path: &str, body: &Value) -> Value {
        self.control_request("POST", path, &body.to_string())
    }

    fn control_request(&self, method: &str, path: &str, body: &str) -> Value {
        let address = self.0.session_text("address");
        let mut stream = TcpStream::connect(&address).unwrap();
        let length = body.len();
        let head = format!(
            "{method} /lanyard/v1/{path} HTTP/1.1\r\nhost: {address}\r\nx-lanyard-control: 1\r\n\
             content-length: {length}\r\nconnection: close\r\n\r\n{body}"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        serde_json::from_str(reply.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    /// The number of requests that reached the vaults.
    fn count_vault_requests(&self) -> usize {
        let log = self.get_control("request-log");
        let entries = log["value"].as_array().unwrap().iter();
        entries.filter(|entry| entry["service"] == "key-vault").count()
    }
}

/// A node plugin without a Kubernetes API, and its directory.
struct PolicyTestNode {
    _process: ChildProcessGuard,
    directory: PathBuf,
}

impl PolicyTestNode {
    fn start(directory: &Path, azure: &PolicyTestAzure, flags: &[&str]) -> Self {
        std::fs::create_dir_all(directory.join("kubelet/pods")).unwrap();
        std::fs::write(directory.join("classes.yaml"), "").unwrap();
        let at = |name: &str| directory.join(name).display().to_string();
        let child = lanyard_command()
            .args(["--log", "error", "node", "--nodeid", "n"])
            .args(["--metrics-addr", "0", "--healthz-port", "0"])
            .args(["--endpoint", &format!("unix://{}", at("csi.sock"))])
            .args(["--kubelet-dir", &at("kubelet"), "--registration-dir", ""])
            .args(["--classes", &at("classes.yaml"), "--provider-socket", &at("azure.sock")])
            .args(["--audit-file", &at("audit.jsonl")])
            .args(flags)
            .env("HTTPS_PROXY", azure.0.session_text("proxy"))
            .env("SSL_CERT_FILE", azure.0.session_text("caBundle"))
            .env("AZURE_POD_IDENTITY_AUTHORITY_HOST", azure.0.session_text("proxy"))
            .spawn()
            .unwrap();
        Self { _process: ChildProcessGuard(child), directory: directory.to_owned() }
    }

    /// Mounts a secret for a pod with the node's identity.
    async fn mount(
        &self,
        namespace: &str,
        object: &PolicyTestSecret,
    ) -> Result<MountResponse, Status> {
        let identity = json!({
            "useVMManagedIdentity": "true",
            "userAssignedIdentityID": object.client,
        });
        self.mount_as(namespace, object, (&identity, &Value::Null)).await
    }

    /// Mounts a secret for a pod as another driver would: with the parameters of an identity, and the pod's
    /// own secrets.
    async fn mount_as(
        &self,
        namespace: &str,
        object: &PolicyTestSecret,
        (identity, secrets): (&Value, &Value),
    ) -> Result<MountResponse, Status> {
        let mut attributes = json!({
            "csi.storage.k8s.io/pod.name": "pod",
            "csi.storage.k8s.io/pod.namespace": namespace,
            "csi.storage.k8s.io/pod.uid": format!("uid-{namespace}"),
            "csi.storage.k8s.io/serviceAccount.name": "default",
            "secretProviderClass": "class",
            "keyvaultName": object.vault,
            "tenantId": object.tenant,
            "objects": format!(
                "array:\n  - |\n    objectName: {}\n    objectType: secret\n", object.name
            ),
        });
        for (key, text) in identity.as_object().unwrap() {
            attributes[key] = text.clone();
        }
        let request = MountRequest {
            attributes: attributes.to_string(),
            secrets: secrets.to_string(),
            target_path: "/target".to_owned(),
            permission: "420".to_owned(),
            current_object_version: Vec::new(),
        };
        let socket = self.directory.join("azure.sock");
        let pause = Duration::from_millis(100);
        for _ in 0..300 {
            if socket.exists() {
                break;
            }
            tokio::time::timeout(pause, std::future::pending::<()>()).await.unwrap_err();
        }
        let mut client = CsiDriverProviderClient::new(lanyard_grpc::channel_to_socket(&socket));
        client.mount(request).await.map(tonic::Response::into_inner)
    }

    /// The events of the audit trail, as `event namespace object verdict`.
    fn audit_events(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.directory.join("audit.jsonl")).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let summary = |line: Value| {
            let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
            let namespace = text(&line["by"]["namespace"]);
            [text(&line["event"]), namespace, text(&line["object"]), text(&line["verdict"])]
                .join(" ")
        };
        lines.map(summary).filter(|line| !line.starts_with("started")).collect()
    }
}

/// A secret that the node's identity may read.
struct PolicyTestSecret {
    client: String,
    tenant: String,
    vault: String,
    name: String,
}

impl PolicyTestSecret {
    fn of_component(azure: &PolicyTestAzure, index: usize) -> Self {
        let azure = azure.get_control("state");
        let component = &azure["components"][index];
        let host = component["vaultHost"].as_str().unwrap();
        let vault = azure["vaults"].as_array().unwrap().iter().find(|it| it["host"] == host);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        Self {
            client: text(&azure["imds"]["assigned"][0]),
            tenant: text(&vault.unwrap()["tenant"]),
            vault: host.split('.').next().unwrap().to_owned(),
            name: text(&component["secretName"]),
        }
    }
}

fn lanyard_command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lanyard"));
    for variable in ["HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "SSL_CERT_FILE"] {
        command.env_remove(variable);
    }
    command
}

#[tokio::test]
async fn policy_suggested_from_audit_allows_exactly_the_recorded_reads() {
    let directory = tempfile::tempdir().unwrap();
    let azure = PolicyTestAzure::start(&directory.path().join("state"));
    let (one, other) =
        (PolicyTestSecret::of_component(&azure, 0), PolicyTestSecret::of_component(&azure, 1));

    let node = PolicyTestNode::start(&directory.path().join("audit"), &azure, &[]);
    let answer = node.mount("tenant-a", &one).await.unwrap();
    assert_eq!((answer.files.len(), answer.object_version.len()), (1, 1));
    node.mount("tenant-a", &one).await.unwrap();
    node.mount("tenant-b", &other).await.unwrap();
    let first = format!("read tenant-a secret/{} unmatched", one.name);
    let second = format!("read tenant-b secret/{} unmatched", other.name);
    let trail = node.directory.join("audit.jsonl");
    let clock = SystemClock::new();
    let deadline = clock.monotonic() + Duration::from_secs(30);
    while node.audit_events().len() < 2 && clock.monotonic() < deadline {
        clock.sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(node.audit_events(), [first, second], "once for each pod and version");
    drop(node);

    let suggest =
        lanyard_command().args(["node", "policy", "suggest", "--from"]).arg(&trail).output();
    let suggested = suggest.unwrap();
    let notes = String::from_utf8(suggested.stderr).unwrap();
    assert!(suggested.status.success() && notes.contains("2 reads became 2 rules"), "{notes}");
    let policy = directory.path().join("policy.yaml");
    std::fs::write(&policy, &suggested.stdout).unwrap();

    let flags = ["--policy-mode", "enforce", "--policy-file", policy.to_str().unwrap()];
    let node = PolicyTestNode::start(&directory.path().join("enforce"), &azure, &flags);
    node.mount("tenant-a", &one).await.unwrap();
    node.mount("tenant-b", &other).await.unwrap();
    let before = azure.count_vault_requests();
    for (namespace, object) in [("tenant-b", &one), ("tenant-a", &other), ("default", &one)] {
        let status = node.mount(namespace, object).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied, "{status}");
        for part in ["PolicyDenied", namespace, &object.name, "does not recover by itself"] {
            assert!(status.message().contains(part), "{part}: {status}");
        }
    }
    assert_eq!(azure.count_vault_requests(), before, "denied reads cause no vault request");
}

#[tokio::test]
async fn policy_does_not_restrict_identities_of_the_pod() {
    let directory = tempfile::tempdir().unwrap();
    let azure = PolicyTestAzure::start(&directory.path().join("state"));
    let test_clients = azure.get_control("test-clients");
    let (federated, application) = (&test_clients["federated"], &test_clients["secret"]);
    let binding = azure.post_control(
        "identity-bindings",
        &json!({
            "clientId": federated["clientId"], "clusterId": "cluster",
            "issuer": federated["issuer"], "subject": federated["subject"],
        }),
    );
    let policy = directory.path().join("policy.yaml");
    let nothing = "apiVersion: lanyard.dev/v1alpha1\nkind: NodePolicy\nrules: []\n";
    std::fs::write(&policy, nothing).unwrap();
    let proxy = azure.0.session_text("proxy").replace("http://", "https://");
    let flags = [
        "--policy-mode=enforce",
        "--policy-file",
        policy.to_str().unwrap(),
        "--token-proxy-url",
        &proxy,
        "--sni-name",
        binding["serverName"].as_str().unwrap(),
    ];
    let node = PolicyTestNode::start(&directory.path().join("node"), &azure, &flags);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let object = PolicyTestSecret {
        client: text(&federated["clientId"]),
        tenant: text(&test_clients["tenant"]),
        vault: text(&test_clients["vaultHost"]).split('.').next().unwrap().to_owned(),
        name: text(&test_clients["secretName"]),
    };
    let token_for = |audience: &Value| {
        let minted = azure.post_control("federated-token", &json!({ "audience": audience }));
        let token =
            json!({ "token": minted["token"], "expirationTimestamp": "2099-01-01T00:00:00Z" });
        json!({ text(audience): token }).to_string()
    };
    let tokens = "csi.storage.k8s.io/serviceAccount.tokens";
    let workload = json!({
        "clientID": object.client, tokens: token_for(&federated["audience"]),
    });
    let bound = json!({
        "clientID": object.client, "useAzureTokenProxy": "true",
        tokens: token_for(&binding["audience"]),
    });
    let principal =
        json!({ "clientid": application["clientId"], "clientsecret": application["clientSecret"] });
    for (mode, identity, secrets) in [
        ("workload identity", &workload, &Value::Null),
        ("identity binding", &bound, &Value::Null),
        ("service principal", &json!({}), &principal),
    ] {
        let answer = node.mount_as("team", &object, (identity, secrets)).await;
        let answer = answer.unwrap_or_else(|status| panic!("{mode}: {status}"));
        assert_eq!(answer.files[0].contents, b"for test clients", "{mode}");
    }
    assert!(node.mount("team", &object).await.is_err(), "the pod must not use the node's identity");
}

#[test]
fn invalid_policy_prevents_start_and_lists_every_problem() {
    let directory = tempfile::tempdir().unwrap();
    let policy = directory.path().join("policy.yaml");
    std::fs::write(&policy, "apiVersion: v1\nkind: NodePolicy\nrule: []\nrules: []\n").unwrap();
    let classes = directory.path().join("classes.yaml");
    std::fs::write(&classes, "").unwrap();
    let output = lanyard_command()
        .args(["node", "--nodeid", "n", "--metrics-addr", "0", "--healthz-port", "0", "--classes"])
        .arg(&classes)
        .arg("--policy-file")
        .arg(&policy)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("`rule`") && text.contains("`apiVersion`"), "{text}");
}

#[test]
fn audit_trail_without_reads_yields_no_policy() {
    let directory = tempfile::tempdir().unwrap();
    let trail = directory.path().join("audit.jsonl");
    std::fs::write(&trail, "not a record\n").unwrap();
    let output = lanyard_command()
        .args(["node", "policy", "suggest", "--from"])
        .arg(&trail)
        .output()
        .unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("no read through a shared identity"), "{text}");
    assert!(text.contains("hint:"), "{text}");
}
