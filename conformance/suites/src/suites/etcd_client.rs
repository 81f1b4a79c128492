//! A client of the etcd behind an API server.

use std::fs;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lanyard_cluster::EtcdAccess;
use libtest_mimic::Failed;
use serde::Deserialize;
use serde_json::{Value, json};

use super::failed_with_causes;

/// A client of etcd, authenticated with a client certificate.
#[derive(Debug)]
pub(super) struct EtcdClient {
    url: String,
    client: reqwest::Client,
}

/// The response of etcd to a range request.
#[derive(Debug, Deserialize)]
struct EtcdRangeResponse {
    #[serde(default)]
    kvs: Vec<EtcdKeyValue>,
}

#[derive(Debug, Deserialize)]
struct EtcdKeyValue {
    value: String,
}

impl EtcdClient {
    /// Creates a client with the given address and certificates.
    pub(super) fn new(access: &EtcdAccess) -> Result<Self, Failed> {
        let read = |path: &Path| fs::read(path).map_err(failed_with_causes);
        let authority = reqwest::Certificate::from_pem(&read(&access.authority)?)
            .map_err(failed_with_causes)?;
        let mut identity = read(&access.certificate)?;
        identity.extend(read(&access.key)?);
        let identity = reqwest::Identity::from_pem(&identity).map_err(failed_with_causes)?;
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([authority]);
        let client = client.identity(identity).build().map_err(failed_with_causes)?;
        Ok(Self { url: access.url.clone(), client })
    }

    /// The stored bytes of a key.
    pub(super) async fn read_key(&self, key: &str) -> Result<Vec<u8>, Failed> {
        let answer = self.call("range", &json!({ "key": STANDARD.encode(key) })).await?;
        let range: EtcdRangeResponse = serde_json::from_str(&answer).map_err(failed_with_causes)?;
        let pair = range.kvs.first().ok_or_else(|| format!("etcd has no key `{key}`"))?;
        STANDARD.decode(&pair.value).map_err(failed_with_causes)
    }

    async fn call(&self, call: &str, body: &Value) -> Result<String, Failed> {
        let url = format!("{}/v3/kv/{call}", self.url);
        let answer = self
            .client
            .post(url)
            .body(body.to_string())
            .send()
            .await
            .map_err(failed_with_causes)?;
        answer
            .error_for_status()
            .map_err(failed_with_causes)?
            .text()
            .await
            .map_err(failed_with_causes)
    }
}
