//! The encryption probe: checks that the key of a hosted cluster encrypts.

use azure_core::http::Method;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lanyard_azure::{AuthenticatedClient, AzureResponse};
use lanyard_credential::reply::excerpt_text as excerpt;
use lanyard_vocabulary::cloud::CloudEndpoints;
use serde_json::json;
use url::Url;

use super::{ProbeAttempt, ProbeKind};
use crate::call::parse_url;
use crate::proof_error::{ProofError, ProofErrorKind};

/// The URL of one key version in a vault or managed HSM: `https://<vault>/keys/<name>/<version>`.
///
/// The text is kept unchanged: the KMS plugin derives the key id from it, and refuses to encrypt if
/// the vault returns another spelling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyUrl {
    text: String,
    url: Url,
    scope: String,
}

/// A text that is not the URL of a key version in this cloud.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` does not have the form https://VAULT/keys/NAME/VERSION with a vault of this cloud"
)]
pub struct ParseKeyUrlError {
    pub text: String,
}

/// The plaintext that HyperShift's control plane operator encrypts.
const SAMPLE: &[u8] = b"text";
const ALGORITHM: &str = "RSA-OAEP-256";
const VERSION: &str = "7.4";

const NO_GATEWAY: &str = "check that no proxy or gateway answers in the vault's place";

impl KeyUrl {
    /// Parses the URL of a key version in the cloud with these endpoints.
    ///
    /// # Errors
    ///
    /// [`ParseKeyUrlError`] if the text is not such a URL.
    pub fn parse(text: &str, endpoints: &CloudEndpoints) -> Result<Self, ParseKeyUrlError> {
        Self::parse_parts(text, endpoints).ok_or_else(|| ParseKeyUrlError { text: text.to_owned() })
    }

    fn parse_parts(text: &str, endpoints: &CloudEndpoints) -> Option<Self> {
        let url = parse_url(text)?;
        let is_of_vault = !url.host_str()?.eq_ignore_ascii_case(endpoints.arm_host);
        let scope = AuthenticatedClient::scope_in_cloud(&url, endpoints).filter(|_| is_of_vault)?;
        let segments: Vec<_> = url.path_segments()?.collect();
        let ["keys", name, version] = segments.as_slice() else { return None };
        let is_whole = !name.is_empty() && !version.is_empty() && url.query().is_none();
        is_whole.then_some(())?;
        Some(Self { text: text.to_owned(), url, scope })
    }

    /// The scope of tokens for the key's vault.
    pub(crate) fn scope(&self) -> &str {
        &self.scope
    }

    /// Encrypts four bytes.
    pub(crate) async fn encrypt(&self, caller: &AuthenticatedClient) -> ProbeAttempt {
        let mut url = self.url.clone();
        url.set_path(&format!("{}/encrypt", self.url.path()));
        url.set_query(Some(&format!("api-version={VERSION}")));
        let body = json!({"alg": ALGORITHM, "value": URL_SAFE_NO_PAD.encode(SAMPLE)});
        match caller.send(Method::Post, &url, Some(&body)).await {
            Ok(reply) => self.evaluate_reply(&reply),
            Err(error) => ProbeAttempt::from_call_error(&error),
        }
    }

    fn evaluate_reply(&self, reply: &AzureResponse) -> ProbeAttempt {
        let text = |name: &str| reply.body.get(name).and_then(serde_json::Value::as_str);
        let has_value = text("value").is_some_and(|value| !value.is_empty());
        let kid = text("kid").unwrap_or_default();
        if has_value && kid == self.text {
            return ProbeAttempt::good(format!("the key {} encrypts", self.text));
        }
        let (problem, hint) = if !has_value {
            ("returned no ciphertext".to_owned(), NO_GATEWAY)
        } else if kid.eq_ignore_ascii_case(&self.text) {
            let problem =
                format!("spells the key `{}`, so the KMS plugin cannot encrypt", excerpt(kid));
            (problem, "write keyVaultName, keyName and keyVersion in the case of that spelling")
        } else {
            ("encrypted with another key".to_owned(), NO_GATEWAY)
        };
        let status = reply.status;
        let message = format!("POST {}/encrypt: {status}, but the vault {problem}", self.text);
        let error =
            ProofError::new(ProofErrorKind::Definitive, ProbeKind::AZURE_ERROR, message, hint);
        ProbeAttempt { outcome: Err(error), retry_delay: None }
    }
}

#[cfg(test)]
mod tests {
    use lanyard_azure::ResponseHeaders;
    use lanyard_vocabulary::Cloud;

    use super::*;

    fn parse(text: &str) -> Result<KeyUrl, ParseKeyUrlError> {
        KeyUrl::parse(text, Cloud::Public.endpoints().unwrap())
    }

    #[test]
    fn key_url_requires_version_and_vault_of_cloud() {
        let key = parse("https://kv.vault.azure.net/keys/etcd/abc").unwrap();
        assert_eq!(key.scope(), "https://vault.azure.net/.default");
        let module = parse("https://m.managedhsm.azure.net/keys/etcd/abc").unwrap();
        assert_eq!(module.scope(), "https://managedhsm.azure.net/.default");
        for text in [
            "https://kv.vault.azure.net/keys/etcd",
            "https://kv.vault.azure.net/keys/etcd/",
            "https://kv.vault.azure.net/keys/etcd/abc/",
            "https://kv.vault.azure.net/secrets/etcd/abc",
            "https://kv.vault.azure.net/keys/etcd/abc?x=1",
            "http://kv.vault.azure.net/keys/etcd/abc",
            "https://management.azure.com/keys/etcd/abc",
            "https://kv.vault.azure.cn/keys/etcd/abc",
            "kv",
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.text, text);
        }
    }

    #[test]
    fn only_ciphertext_of_this_key_is_good() {
        let key = parse("https://kv.vault.azure.net/keys/etcd/abc").unwrap();
        let kid = "https://kv.vault.azure.net/keys/etcd/abc";
        let other = "https://kv.vault.azure.net/keys/etcd/def";
        let cases = [
            (json!({"kid": kid, "value": "c2FtcGxl"}), true),
            (json!({"kid": other, "value": "c2FtcGxl"}), false),
            (json!({"kid": kid, "value": ""}), false),
            (json!({"value": "c2FtcGxl"}), false),
            (serde_json::Value::Null, false),
        ];
        for (body, good) in cases {
            let attempt = key.evaluate_reply(&AzureResponse {
                status: 200,
                body: body.clone(),
                headers: ResponseHeaders::default(),
            });
            assert_eq!(attempt.outcome.is_ok(), good, "{body}");
        }
    }

    /// With such a key, the KMS plugin refuses to encrypt: its key id is a hash of the spelling.
    #[test]
    fn key_spelled_in_another_case_is_reported() {
        let vault = "https://kv.vault.azure.net/keys/etcd/abc";
        for text in
            ["https://KV.vault.azure.net/keys/etcd/abc", "https://kv.vault.azure.net/keys/Etcd/abc"]
        {
            let body = json!({"kid": vault, "value": "c2FtcGxl"});
            let attempt = parse(text).unwrap().evaluate_reply(&AzureResponse {
                status: 200,
                body,
                headers: ResponseHeaders::default(),
            });
            let error = attempt.outcome.unwrap_err();
            assert!(error.message.contains(text) && error.message.contains(vault));
            assert!(error.hint.contains("keyVaultName, keyName"), "{}", error.hint);
        }
        let text = "https://KV.vault.azure.net/keys/etcd/abc";
        let body = json!({"kid": text, "value": "c2FtcGxl"});
        assert!(
            parse(text)
                .unwrap()
                .evaluate_reply(&AzureResponse {
                    status: 200,
                    body,
                    headers: ResponseHeaders::default()
                })
                .outcome
                .is_ok()
        );
    }
}
