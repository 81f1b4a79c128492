//! The suite `kms`: a real API server that encrypts with lanyard's KMS plugin, or with upstream's in its
//! place.

mod encrypting_api_server;
mod identity_failures;
mod key_rotation;
mod plugin_process;
mod upstream_compatibility;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use libtest_mimic::{Failed, Trial};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use self::encrypting_api_server::EncryptingApiServer;
use self::plugin_process::{KmsPluginKind, KmsPluginOptions, KmsPluginProcess};
use super::failed_with_causes;
use crate::azure_target::LocalAzureTarget;
use crate::local_azure::LoggedRequest;
use crate::sign_in_method::SignInMethod;

/// The fixture of the suite `kms`.
#[derive(Debug)]
pub(crate) struct KmsSuiteFixture {
    pub(crate) azure: Arc<LocalAzureTarget>,
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) programs: KmsPrograms,
    pub(crate) key: KmsKeyVersion,
    /// The vault secret of the component whose identity may use the key.
    pub(crate) secret_name: String,
    pub(crate) directory: PathBuf,
    next_number: AtomicU32,
}

/// The programs of the suite.
#[derive(Debug)]
pub(crate) struct KmsPrograms {
    pub(crate) lanyard: PathBuf,
    pub(crate) kubernetes_kms: PathBuf,
    pub(crate) etcd: PathBuf,
    pub(crate) kube_apiserver: PathBuf,
}

/// A version of a key in a vault.
#[derive(Debug, Clone)]
pub(crate) struct KmsKeyVersion {
    pub(crate) vault: String,
    pub(crate) name: String,
    pub(crate) version: String,
}

impl KmsKeyVersion {
    /// The host name of the vault.
    fn host(&self) -> String {
        format!("{}.vault.azure.net", self.vault)
    }
}

#[derive(Debug, Deserialize)]
struct SeedResources {
    resources: Vec<String>,
}

#[derive(Deserialize)]
struct AccessTokenResponse {
    access_token: String,
}

pub(crate) fn trials(fixture: KmsSuiteFixture) -> Vec<Trial> {
    let fixture = Arc::new(fixture);
    let mut trials = upstream_compatibility::trials(&fixture);
    trials.extend(key_rotation::trials(&fixture));
    trials.extend(identity_failures::trials(&fixture));
    trials
}

/// A trial that runs on the suite's runtime.
fn trial(
    name: &str,
    fixture: &Arc<KmsSuiteFixture>,
    run: impl AsyncFnOnce(&KmsSuiteFixture) -> Result<(), Failed> + Send + 'static,
) -> Trial {
    let fixture = Arc::clone(fixture);
    Trial::test(name, move || fixture.runtime.block_on(run(&fixture)))
}

impl KmsSuiteFixture {
    pub(crate) fn new(
        azure: Arc<LocalAzureTarget>,
        runtime: Arc<Runtime>,
        programs: KmsPrograms,
        (key, secret_name): (KmsKeyVersion, String),
    ) -> Self {
        let directory = azure.azure.directory().join("kms");
        let next_number = AtomicU32::new(0);
        Self { azure, runtime, programs, key, secret_name, directory, next_number }
    }

    /// Grants the use of keys to the test client that upstream's plugin uses.
    pub(crate) async fn prepare(&self) -> Result<(), Failed> {
        fs::create_dir_all(&self.directory).map_err(failed_with_causes)?;
        let test_client = self.azure.inputs(SignInMethod::Secret).client;
        self.grant_key_use(&test_client).await
    }

    /// Assigns the role `Key Vault Crypto User` on the vault to an identity.
    async fn grant_key_use(&self, client: &str) -> Result<(), Failed> {
        let control = self.azure.control_api();
        let seed_data: SeedResources = control.get("state").await.map_err(failed_with_causes)?;
        let end = format!("/vaults/{}", self.key.vault);
        let scope = seed_data.resources.into_iter().find(|id| id.ends_with(&end));
        let scope = scope.ok_or("the seed data has no vault of keys")?;
        let role = json!({ "principal": client, "role": "Key Vault Crypto User", "scope": scope });
        drop(control.post::<Value>("role-assignments", &role).await.map_err(failed_with_causes)?);
        Ok(())
    }

    /// Creates another version of the key.
    async fn create_key_version(&self, version: &str) -> Result<KmsKeyVersion, Failed> {
        self.put_key_version(&json!({ "version": version })).await?;
        Ok(KmsKeyVersion { version: version.to_owned(), ..self.key.clone() })
    }

    async fn put_key_version(&self, more: &Value) -> Result<(), Failed> {
        let mut body = json!({ "vaultHost": self.key.host(), "name": self.key.name });
        for (name, value) in more.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        drop(
            self.azure
                .control_api()
                .put::<Value>("keys", &body)
                .await
                .map_err(failed_with_causes)?,
        );
        Ok(())
    }

    /// Fetches the component's credential, as its volume would contain it.
    async fn fetch_credential(&self) -> Result<String, Failed> {
        #[derive(Deserialize)]
        struct VaultSecretResponse {
            value: String,
        }
        let client = self.http_client()?;
        let url = "http://169.254.169.254/metadata/identity/oauth2/token";
        let reader = self.azure.vault_reader();
        let query = [
            ("api-version", "2018-02-01"),
            ("resource", "https://vault.azure.net"),
            ("client_id", reader),
        ];
        let request = client.get(url_with_query(url, &query)?).header("metadata", "true");
        let token: AccessTokenResponse = send_for_json(request).await?;
        let url = format!("https://{}/secrets/{}", self.azure.vault_host(), self.secret_name);
        let request = client.get(url_with_query(&url, &[("api-version", "7.4")])?);
        let secret: VaultSecretResponse =
            send_for_json(request.bearer_auth(token.access_token)).await?;
        Ok(secret.value)
    }

    /// An HTTP client for the Azure services of this local Azure.
    fn http_client(&self) -> Result<reqwest::Client, Failed> {
        let pem = fs::read(self.azure.authority_file()).map_err(failed_with_causes)?;
        let roots = reqwest::Certificate::from_pem_bundle(&pem).map_err(failed_with_causes)?;
        let proxy = reqwest::Proxy::all(self.azure.proxy_url()).map_err(failed_with_causes)?;
        let builder = reqwest::Client::builder().tls_certs_only(roots).proxy(proxy);
        builder.build().map_err(failed_with_causes)
    }

    /// The number of encrypt and decrypt requests to the key's vault so far.
    async fn vault_request_count(&self) -> Result<usize, Failed> {
        let requests = self.azure.control_api().requests_since(0).await;
        let host = self.key.host();
        let uses_key = |request: &&LoggedRequest| {
            request.host == host
                && (request.path.ends_with("/encrypt") || request.path.ends_with("/decrypt"))
        };
        Ok(requests.map_err(failed_with_causes)?.iter().filter(uses_key).count())
    }

    /// Starts a lanyard plugin with the credential file of the component.
    async fn start_lanyard_plugin(
        &self,
        name: &str,
        key: &KmsKeyVersion,
        layout: &str,
    ) -> Result<KmsPluginProcess, Failed> {
        let file = self.directory.join(format!("{name}.credential.json"));
        fs::write(&file, self.fetch_credential().await?).map_err(failed_with_causes)?;
        let config = json!({ "cloud": "AzurePublicCloud", "aadMSIDataPlaneIdentityPath": file });
        let created = KmsPluginOptions { name, key, kind: KmsPluginKind::Lanyard { layout } };
        KmsPluginProcess::start(self, created, &config).await
    }

    /// Starts upstream's plugin with a client secret.
    async fn start_upstream_plugin(
        &self,
        name: &str,
        key: &KmsKeyVersion,
    ) -> Result<KmsPluginProcess, Failed> {
        let test_client = self.azure.inputs(SignInMethod::Secret);
        let config = json!({
            "cloud": "AzurePublicCloud", "tenantId": test_client.tenant, "aadClientId": test_client.client,
            "aadClientSecret": test_client.client_secret,
        });
        KmsPluginProcess::start(
            self,
            KmsPluginOptions { name, key, kind: KmsPluginKind::Upstream },
            &config,
        )
        .await
    }

    async fn start_api_server(
        &self,
        providers: &[(&str, &KmsPluginProcess)],
    ) -> Result<EncryptingApiServer, Failed> {
        EncryptingApiServer::start(self, providers).await
    }

    /// A number that is unique in this process.
    fn next_instance_number(&self) -> u32 {
        self.next_number.fetch_add(1, Relaxed)
    }
}

fn url_with_query(url: &str, pairs: &[(&str, &str)]) -> Result<url::Url, Failed> {
    url::Url::parse_with_params(url, pairs).map_err(failed_with_causes)
}

/// Sends a request and parses the JSON response. The error contains the status and the beginning of the body.
async fn send_for_json<T: serde::de::DeserializeOwned>(
    request: reqwest::RequestBuilder,
) -> Result<T, Failed> {
    let answer = request.send().await.map_err(failed_with_causes)?;
    let status = answer.status();
    let body = answer.text().await.map_err(failed_with_causes)?;
    if !status.is_success() {
        let start: String = body.chars().take(300).collect();
        return Err(format!("{status}: {start}").into());
    }
    serde_json::from_str(&body).map_err(failed_with_causes)
}

/// Fails the trial unless a condition holds.
fn expect_that(condition: bool, what: impl FnOnce() -> String) -> Result<(), Failed> {
    if condition { Ok(()) } else { Err(what().into()) }
}

/// The socket path of an instance, with a short name because the length of socket paths is limited.
fn socket_path(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.s"))
}
