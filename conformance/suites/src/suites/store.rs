//! The store behind an API server of one's own, by its own interface.

use std::fs;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lanyard_cluster::StoreAccess;
use libtest_mimic::Failed;
use serde::Deserialize;
use serde_json::{Value, json};

use super::chain;

/// The store, reached with the certificate that it asks for.
#[derive(Debug)]
pub(super) struct Store {
    url: String,
    client: reqwest::Client,
}

/// What the store says of a key.
#[derive(Debug, Deserialize)]
struct Range {
    #[serde(default)]
    kvs: Vec<Pair>,
}

#[derive(Debug, Deserialize)]
struct Pair {
    value: String,
}

impl Store {
    /// One that is reached like this.
    pub(super) fn new(access: &StoreAccess) -> Result<Self, Failed> {
        let read = |path: &Path| fs::read(path).map_err(chain);
        let authority = reqwest::Certificate::from_pem(&read(&access.authority)?).map_err(chain)?;
        let mut identity = read(&access.certificate)?;
        identity.extend(read(&access.key)?);
        let identity = reqwest::Identity::from_pem(&identity).map_err(chain)?;
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([authority]);
        let client = client.identity(identity).build().map_err(chain)?;
        Ok(Self { url: access.url.clone(), client })
    }

    /// The bytes of a key.
    pub(super) async fn read(&self, key: &str) -> Result<Vec<u8>, Failed> {
        let answer = self.ask("range", &json!({ "key": STANDARD.encode(key) })).await?;
        let range: Range = serde_json::from_str(&answer).map_err(chain)?;
        let pair = range.kvs.first().ok_or_else(|| format!("the store has no {key}"))?;
        STANDARD.decode(&pair.value).map_err(chain)
    }

    async fn ask(&self, call: &str, body: &Value) -> Result<String, Failed> {
        let url = format!("{}/v3/kv/{call}", self.url);
        let answer = self.client.post(url).body(body.to_string()).send().await.map_err(chain)?;
        answer.error_for_status().map_err(chain)?.text().await.map_err(chain)
    }
}
