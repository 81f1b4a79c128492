//! A real API server that encrypts with our KMS plugin, and the plugin of the upstream project in
//! its place.

mod api_server;
mod identity;
mod instance;
mod interchange;
mod rotation;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use libtest_mimic::{Failed, Trial};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use self::api_server::ApiServer;
use self::instance::{Instance, Made, Program};
use super::chain;
use crate::ground::{Holder, Local};

/// Everything that the trials of this suite need.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) azure: Local,
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) programs: Programs,
    pub(crate) key: Key,
    /// The component whose identity may use the key, and its secret.
    pub(crate) secret_name: String,
    pub(crate) directory: PathBuf,
    ports: AtomicU32,
}

/// The programs of the suite.
#[derive(Debug)]
pub(crate) struct Programs {
    pub(crate) lanyard: PathBuf,
    pub(crate) kubernetes_kms: PathBuf,
    pub(crate) etcd: PathBuf,
    pub(crate) kube_apiserver: PathBuf,
}

/// A version of a key.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    pub(crate) vault: String,
    pub(crate) name: String,
    pub(crate) version: String,
}

impl Key {
    /// The vault's host name.
    fn host(&self) -> String {
        format!("{}.vault.azure.net", self.vault)
    }
}

#[derive(Debug, Deserialize)]
struct World {
    resources: Vec<String>,
}

#[derive(Deserialize)]
struct Token {
    access_token: String,
}

pub(crate) fn trials(stage: Stage) -> Vec<Trial> {
    let stage = Arc::new(stage);
    let mut trials = interchange::trials(&stage);
    trials.extend(rotation::trials(&stage));
    trials.extend(identity::trials(&stage));
    trials
}

/// A trial on processes of its own.
fn trial(
    name: &str,
    stage: &Arc<Stage>,
    run: impl AsyncFnOnce(&Stage) -> Result<(), Failed> + Send + 'static,
) -> Trial {
    let stage = Arc::clone(stage);
    Trial::test(name, move || stage.runtime.block_on(run(&stage)))
}

impl Stage {
    pub(crate) fn new(
        azure: Local,
        runtime: Arc<Runtime>,
        programs: Programs,
        (key, secret_name): (Key, String),
    ) -> Self {
        let directory = azure.azure.directory().join("kms");
        let ports = AtomicU32::new(0);
        Self { azure, runtime, programs, key, secret_name, directory, ports }
    }

    /// Lets the client that signs in with a secret use keys too.
    pub(crate) async fn prepare(&self) -> Result<(), Failed> {
        fs::create_dir_all(&self.directory).map_err(chain)?;
        let guest = self.azure.inputs(Holder::Secret).client;
        self.grant(&guest).await
    }

    /// Gives an identity the right to use keys.
    async fn grant(&self, client: &str) -> Result<(), Failed> {
        let control = self.azure.control();
        let world: World = control.read("world").await.map_err(chain)?;
        let end = format!("/vaults/{}", self.key.vault);
        let scope = world.resources.into_iter().find(|id| id.ends_with(&end));
        let scope = scope.ok_or("the world has no vault of keys")?;
        let role = json!({ "principal": client, "role": "Key Vault Crypto User", "scope": scope });
        drop(control.write::<Value>("role-assignments", &role).await.map_err(chain)?);
        Ok(())
    }

    /// Another version of the key.
    async fn new_version(&self, version: &str) -> Result<Key, Failed> {
        self.put_key(&json!({ "version": version })).await?;
        Ok(Key { version: version.to_owned(), ..self.key.clone() })
    }

    async fn put_key(&self, more: &Value) -> Result<(), Failed> {
        let mut body = json!({ "vaultHost": self.key.host(), "name": self.key.name });
        for (name, value) in more.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        drop(self.azure.control().replace::<Value>("keys", &body).await.map_err(chain)?);
        Ok(())
    }

    /// The credential of the component, as its volume would hold it.
    async fn fetch_credential(&self) -> Result<String, Failed> {
        #[derive(Deserialize)]
        struct Secret {
            value: String,
        }
        let client = self.client()?;
        let url = "http://169.254.169.254/metadata/identity/oauth2/token";
        let reader = self.azure.vault_reader();
        let query = [
            ("api-version", "2018-02-01"),
            ("resource", "https://vault.azure.net"),
            ("client_id", reader),
        ];
        let request = client.get(with_query(url, &query)?).header("metadata", "true");
        let token: Token = answer(request).await?;
        let url = format!("https://{}/secrets/{}", self.azure.vault_host(), self.secret_name);
        let request = client.get(with_query(&url, &[("api-version", "7.4")])?);
        let secret: Secret = answer(request.bearer_auth(token.access_token)).await?;
        Ok(secret.value)
    }

    /// A client of this local Azure.
    fn client(&self) -> Result<reqwest::Client, Failed> {
        let pem = fs::read(self.azure.authority()).map_err(chain)?;
        let roots = reqwest::Certificate::from_pem_bundle(&pem).map_err(chain)?;
        let proxy = reqwest::Proxy::all(self.azure.proxy()).map_err(chain)?;
        let builder = reqwest::Client::builder().tls_certs_only(roots).proxy(proxy);
        builder.build().map_err(chain)
    }

    /// How many requests the vault of the keys has been sent so far.
    async fn vault_requests(&self) -> Result<usize, Failed> {
        #[derive(Deserialize)]
        struct Ledger {
            value: Vec<Value>,
        }
        let ledger: Ledger = self.azure.control().read("ledger").await.map_err(chain)?;
        let host = self.key.host();
        let uses = |entry: &&Value| {
            let text = entry.to_string();
            text.contains(&host) && (text.contains("/encrypt") || text.contains("/decrypt"))
        };
        Ok(ledger.value.iter().filter(uses).count())
    }

    /// An instance of ours, with the credential file of the component.
    async fn ours(&self, name: &str, key: &Key, layout: &str) -> Result<Instance, Failed> {
        let file = self.directory.join(format!("{name}.credential.json"));
        fs::write(&file, self.fetch_credential().await?).map_err(chain)?;
        let config = json!({ "cloud": "AzurePublicCloud", "aadMSIDataPlaneIdentityPath": file });
        let made = Made { name, key, program: Program::Ours { layout } };
        Instance::start(self, made, &config).await
    }

    /// An instance of the upstream project's plugin, with a client secret.
    async fn theirs(&self, name: &str, key: &Key) -> Result<Instance, Failed> {
        let guest = self.azure.inputs(Holder::Secret);
        let config = json!({
            "cloud": "AzurePublicCloud", "tenantId": guest.tenant, "aadClientId": guest.client,
            "aadClientSecret": guest.client_secret,
        });
        Instance::start(self, Made { name, key, program: Program::Theirs }, &config).await
    }

    async fn api_server(&self, providers: &[(&str, &Instance)]) -> Result<ApiServer, Failed> {
        ApiServer::start(self, providers).await
    }

    /// A number that no other instance of this process has.
    fn number(&self) -> u32 {
        self.ports.fetch_add(1, Relaxed)
    }
}

fn with_query(url: &str, pairs: &[(&str, &str)]) -> Result<url::Url, Failed> {
    url::Url::parse_with_params(url, pairs).map_err(chain)
}

/// The JSON of an answer; an error names the status and the beginning of the body.
async fn answer<T: serde::de::DeserializeOwned>(
    request: reqwest::RequestBuilder,
) -> Result<T, Failed> {
    let answer = request.send().await.map_err(chain)?;
    let status = answer.status();
    let body = answer.text().await.map_err(chain)?;
    if !status.is_success() {
        let start: String = body.chars().take(300).collect();
        return Err(format!("{status}: {start}").into());
    }
    serde_json::from_str(&body).map_err(chain)
}

/// Fails a trial unless something is so.
fn expect(is_so: bool, what: impl FnOnce() -> String) -> Result<(), Failed> {
    if is_so { Ok(()) } else { Err(what().into()) }
}

/// A directory whose names of sockets are short enough.
fn socket_path(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.s"))
}
