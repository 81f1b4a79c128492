//! An API server that encrypts Secrets with KMS plugins, and its etcd.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lanyard_clock::{Clock, SystemClock};
use lanyard_cluster::{ControlPlane, ControlPlaneOptions};
use libtest_mimic::Failed;
use reqwest::Method;
use serde_json::{Value, json};

use super::plugin_process::KmsPluginProcess;
use super::{KmsSuiteFixture, expect_that};
use crate::suites::etcd_client::EtcdClient;
use crate::suites::failed_with_causes;

/// An API server with its etcd.
#[derive(Debug)]
pub(super) struct EncryptingApiServer {
    plane: ControlPlane,
    client: reqwest::Client,
    etcd: EtcdClient,
    configuration: PathBuf,
}

const NAMESPACE: &str = "default";

impl EncryptingApiServer {
    /// Starts an API server that encrypts Secrets with the first provider and decrypts with all.
    pub(super) async fn start(
        fixture: &KmsSuiteFixture,
        providers: &[(&str, &KmsPluginProcess)],
    ) -> Result<Self, Failed> {
        let configuration =
            fixture.directory.join(format!("encryption-{}.json", fixture.next_instance_number()));
        write_encryption_configuration(&configuration, providers)?;
        let programs = &fixture.programs;
        let options =
            ControlPlaneOptions::new(programs.etcd.clone(), programs.kube_apiserver.clone())
                .with_flag("encryption-provider-config", &configuration.display().to_string())
                .with_flag("encryption-provider-config-automatic-reload", "false");
        let plane = ControlPlane::start(options).await.map_err(failed_with_causes)?;
        let client = reqwest::Client::builder().no_proxy().tls_danger_accept_invalid_certs(true);
        let client = client.build().map_err(failed_with_causes)?;
        let store = EtcdClient::new(&plane.etcd_access())?;
        Ok(Self { plane, client, etcd: store, configuration })
    }

    /// Restarts the API server with other providers. etcd keeps running.
    pub(super) async fn restart(
        &self,
        providers: &[(&str, &KmsPluginProcess)],
    ) -> Result<(), Failed> {
        write_encryption_configuration(&self.configuration, providers)?;
        self.plane.kill_api_server();
        self.plane.start_api_server().await.map_err(failed_with_causes)
    }

    /// Creates or updates a Secret.
    pub(super) async fn write_secret(&self, name: &str, value: &str) -> Result<(), Failed> {
        let object = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name },
            "stringData": { "value": value },
        });
        let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets/{name}");
        let (status, response) = self.send_request(Method::PUT, &path, Some(&object)).await?;
        if status != 404 {
            return expect_that(status == 200, || {
                format!("{name} could not be updated: {status} {response}")
            });
        }
        let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets");
        let (status, response) = self.send_request(Method::POST, &path, Some(&object)).await?;
        expect_that(status == 201, || format!("{name} could not be created: {status} {response}"))
    }

    /// Fails unless the Secret has this value.
    pub(super) async fn expect_secret_value(&self, name: &str, value: &str) -> Result<(), Failed> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets/{name}");
        let (status, response) = self.send_request(Method::GET, &path, None).await?;
        let held = response["data"]["value"].as_str().and_then(|text| STANDARD.decode(text).ok());
        expect_that(held.as_deref() == Some(value.as_bytes()), || {
            format!("{name} could not be read: {status} {response}")
        })
    }

    /// Fails unless etcd stores the Secret with this provider's prefix and without the plaintext.
    pub(super) async fn expect_encrypted_in_etcd(
        &self,
        name: &str,
        provider: &str,
        value: &str,
    ) -> Result<(), Failed> {
        let bytes = self.etcd.read_key(&format!("/registry/secrets/{NAMESPACE}/{name}")).await?;
        let prefix = format!("k8s:enc:kms:v2:{provider}:");
        expect_that(bytes.starts_with(prefix.as_bytes()), || {
            let start = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned();
            format!("{name} is stored as {start:?} and not under {prefix}")
        })?;
        let shows = bytes.windows(value.len()).any(|window| window == value.as_bytes());
        expect_that(!shows, || format!("{name} is stored in the clear behind its prefix"))
    }

    /// Waits until the readiness check of the KMS plugins passes or fails, and returns its message.
    pub(super) async fn wait_for_kms_readiness(
        &self,
        should: bool,
        timeout: Duration,
    ) -> Result<String, Failed> {
        let clock = SystemClock::new();
        let deadline = clock.monotonic() + timeout;
        loop {
            let (status, response) = self.get_text("/readyz/kms-providers").await?;
            if (status == 200) == should {
                return Ok(response);
            }
            if clock.monotonic() > deadline {
                let word = if should { "ready" } else { "unready" };
                return Err(format!("not {word} in {timeout:?}: {status} {response}").into());
            }
            clock.sleep(Duration::from_millis(250)).await;
        }
    }

    async fn send_request(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Value), Failed> {
        let request = self.client.request(method, format!("{}{path}", self.plane.url()));
        let mut request = request.bearer_auth(self.plane.administrator_token().expose());
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let answer = request.send().await.map_err(failed_with_causes)?;
        let status = answer.status().as_u16();
        let text = answer.text().await.map_err(failed_with_causes)?;
        Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
    }

    async fn get_text(&self, path: &str) -> Result<(u16, String), Failed> {
        let (status, response) = self.send_request(Method::GET, path, None).await?;
        Ok((status, response.as_str().map_or_else(|| response.to_string(), str::to_owned)))
    }
}

fn write_encryption_configuration(
    file: &Path,
    providers: &[(&str, &KmsPluginProcess)],
) -> Result<(), Failed> {
    let kms = |(name, instance): &(&str, &KmsPluginProcess)| {
        let endpoint = format!("unix://{}", instance.socket_path().display());
        let kms =
            json!({ "apiVersion": "v2", "name": name, "endpoint": endpoint, "timeout": "5s" });
        json!({ "kms": kms })
    };
    let mut all: Vec<_> = providers.iter().map(kms).collect();
    all.push(json!({ "identity": {} }));
    let configuration = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration",
        "resources": [{ "resources": ["secrets"], "providers": all }],
    });
    fs::write(file, configuration.to_string()).map_err(failed_with_causes)
}
