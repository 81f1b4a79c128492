//! A real API server that encrypts Secrets with plugins, and the store behind it.

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

use super::instance::Instance;
use super::{Stage, expect};
use crate::suites::chain;
use crate::suites::store::Store;

/// An API server with its store.
#[derive(Debug)]
pub(super) struct ApiServer {
    plane: ControlPlane,
    client: reqwest::Client,
    store: Store,
    configuration: PathBuf,
}

const NAMESPACE: &str = "default";

impl ApiServer {
    /// Starts one whose Secrets are encrypted by the first provider, and read by all.
    pub(super) async fn start(
        stage: &Stage,
        providers: &[(&str, &Instance)],
    ) -> Result<Self, Failed> {
        let configuration = stage.directory.join(format!("encryption-{}.json", stage.number()));
        write_configuration(&configuration, providers)?;
        let programs = &stage.programs;
        let options =
            ControlPlaneOptions::new(programs.etcd.clone(), programs.kube_apiserver.clone())
                .flag("encryption-provider-config", &configuration.display().to_string())
                .flag("encryption-provider-config-automatic-reload", "false");
        let plane = ControlPlane::start(options).await.map_err(chain)?;
        let client = reqwest::Client::builder().no_proxy().tls_danger_accept_invalid_certs(true);
        let client = client.build().map_err(chain)?;
        let store = Store::new(&plane.store())?;
        Ok(Self { plane, client, store, configuration })
    }

    /// Starts the API server anew with other providers; the store stays.
    pub(super) async fn restart(&self, providers: &[(&str, &Instance)]) -> Result<(), Failed> {
        write_configuration(&self.configuration, providers)?;
        self.plane.kill_server();
        self.plane.start_server().await.map_err(chain)
    }

    /// Makes a Secret, or writes it anew.
    pub(super) async fn write(&self, name: &str, value: &str) -> Result<(), Failed> {
        let object = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name },
            "stringData": { "value": value },
        });
        let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets/{name}");
        let (status, told) = self.call(Method::PUT, &path, Some(&object)).await?;
        if status != 404 {
            return expect(status == 200, || format!("{name} is not written: {status} {told}"));
        }
        let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets");
        let (status, told) = self.call(Method::POST, &path, Some(&object)).await?;
        expect(status == 201, || format!("{name} is not made: {status} {told}"))
    }

    /// Fails unless a Secret holds a value.
    pub(super) async fn expect_read(&self, name: &str, value: &str) -> Result<(), Failed> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets/{name}");
        let (status, told) = self.call(Method::GET, &path, None).await?;
        let held = told["data"]["value"].as_str().and_then(|text| STANDARD.decode(text).ok());
        expect(held.as_deref() == Some(value.as_bytes()), || {
            format!("{name} is not read: {status} {told}")
        })
    }

    /// Fails unless a Secret's bytes in the store are a provider's and hide its value.
    pub(super) async fn expect_stored(
        &self,
        name: &str,
        provider: &str,
        value: &str,
    ) -> Result<(), Failed> {
        let bytes = self.store.read(&format!("/registry/secrets/{NAMESPACE}/{name}")).await?;
        let prefix = format!("k8s:enc:kms:v2:{provider}:");
        expect(bytes.starts_with(prefix.as_bytes()), || {
            let start = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned();
            format!("{name} is stored as {start:?} and not under {prefix}")
        })?;
        let shows = bytes.windows(value.len()).any(|window| window == value.as_bytes());
        expect(!shows, || format!("{name} is stored in the clear behind its prefix"))
    }

    /// Waits until the API server is ready, or is not, as far as the plugins are concerned, and
    /// returns what it says.
    pub(super) async fn await_ready(
        &self,
        should: bool,
        patience: Duration,
    ) -> Result<String, Failed> {
        let clock = SystemClock::new();
        let deadline = clock.monotonic() + patience;
        loop {
            let (status, told) = self.text("/readyz/kms-providers").await?;
            if (status == 200) == should {
                return Ok(told);
            }
            if clock.monotonic() > deadline {
                let word = if should { "ready" } else { "unready" };
                return Err(format!("not {word} in {patience:?}: {status} {told}").into());
            }
            clock.sleep(Duration::from_millis(250)).await;
        }
    }

    async fn call(
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
        let answer = request.send().await.map_err(chain)?;
        let status = answer.status().as_u16();
        let text = answer.text().await.map_err(chain)?;
        Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
    }

    async fn text(&self, path: &str) -> Result<(u16, String), Failed> {
        let (status, told) = self.call(Method::GET, path, None).await?;
        Ok((status, told.as_str().map_or_else(|| told.to_string(), str::to_owned)))
    }
}

fn write_configuration(file: &Path, providers: &[(&str, &Instance)]) -> Result<(), Failed> {
    let kms = |(name, instance): &(&str, &Instance)| {
        let endpoint = format!("unix://{}", instance.socket().display());
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
    fs::write(file, configuration.to_string()).map_err(chain)
}
