//! The URL of a service account issuer.

use std::borrow::Cow;
use std::str::FromStr;

use lanyard_clock::ErrorHint;
use url::Url;

use crate::storage_names::{IssuerContainer, IssuerStorageAccount};

/// The path of the discovery document below the issuer (`OpenID` Connect Discovery 1.0, section 4).
pub const DISCOVERY_PATH: &str = ".well-known/openid-configuration";

/// The path of the key set below the issuer, as in ccoctl and the Kubernetes API server.
pub const KEY_SET_PATH: &str = "openid/v1/jwks";

/// The URL of a service account issuer: `https`, without trailing slash, query and fragment.
///
/// Entra ID compares it byte for byte with the `iss` of tokens and the `issuer` of the discovery
/// document and of federated credentials. So only the normal form of a URL is accepted, which no
/// client changes.
///
/// ```
/// use lanyard_federation::IssuerUrl;
///
/// let issuer: IssuerUrl = "https://oidc.blob.core.windows.net/c1".parse()?;
/// assert_eq!(issuer.key_set_url(), "https://oidc.blob.core.windows.net/c1/openid/v1/jwks");
/// assert!("https://oidc.blob.core.windows.net/c1/".parse::<IssuerUrl>().is_err());
/// # Ok::<(), lanyard_federation::ParseIssuerUrlError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IssuerUrl(String);

/// A text is not the URL of an issuer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an issuer URL: {reason}")]
pub struct ParseIssuerUrlError {
    /// The rejected text.
    pub text: String,
    /// The violated rule.
    pub reason: String,
}

impl ErrorHint for ParseIssuerUrlError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(
            "use a URL such as `https://ACCOUNT.blob.core.windows.net/CONTAINER`, without a slash at its end",
        ))
    }
}

impl IssuerUrl {
    /// The issuer whose documents are blobs of a container. `blob_suffix` is the DNS suffix of the
    /// cloud's blobs, such as `blob.core.windows.net` (`CloudEndpoints::blob_suffix`).
    ///
    /// # Errors
    ///
    /// Returns an error if `blob_suffix` is not a host name.
    pub fn for_container(
        account: &IssuerStorageAccount,
        container: &IssuerContainer,
        blob_suffix: &str,
    ) -> Result<Self, ParseIssuerUrlError> {
        format!("https://{account}.{blob_suffix}/{container}").parse()
    }

    /// The URL, byte for byte as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The URL of the discovery document.
    pub fn discovery_url(&self) -> String {
        format!("{}/{DISCOVERY_PATH}", self.0)
    }

    /// The URL of the key set.
    pub fn key_set_url(&self) -> String {
        format!("{}/{KEY_SET_PATH}", self.0)
    }
}

impl FromStr for IssuerUrl {
    type Err = ParseIssuerUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let reject = |reason: String| Err(ParseIssuerUrlError { text: text.to_owned(), reason });
        let url = match Url::parse(text) {
            Ok(url) => url,
            Err(error) => return reject(error.to_string()),
        };
        if url.scheme() != "https" {
            return reject("it does not begin with `https://`".to_owned());
        }
        if !url.username().is_empty() || url.password().is_some() {
            return reject("it has a user name or a password".to_owned());
        }
        if url.query().is_some() || url.fragment().is_some() {
            return reject("it has a query or a fragment".to_owned());
        }
        if text.ends_with('/') {
            return reject("it ends with a slash".to_owned());
        }
        // The normal form of a URL without path ends with a slash.
        let normal = url.as_str().trim_end_matches('/');
        if normal != text {
            return reject(format!("clients change it to `{normal}`"));
        }
        Ok(Self(text.to_owned()))
    }
}

lanyard_vocabulary::display_text!(IssuerUrl, 0);

#[cfg(test)]
mod tests {
    use lanyard_vocabulary::Cloud;

    use super::*;

    #[test]
    fn issuer_of_a_container_uses_the_suffix_of_the_cloud() {
        let account: IssuerStorageAccount = "oidc1".parse().unwrap();
        let container: IssuerContainer = "my-cluster".parse().unwrap();
        let issuer = |cloud: Cloud| {
            let suffix = cloud.endpoints().unwrap().blob_suffix();
            IssuerUrl::for_container(&account, &container, &suffix).unwrap().to_string()
        };
        assert_eq!(issuer(Cloud::Public), "https://oidc1.blob.core.windows.net/my-cluster");
        assert_eq!(
            issuer(Cloud::UsGovernment),
            "https://oidc1.blob.core.usgovcloudapi.net/my-cluster"
        );
        assert!(IssuerUrl::for_container(&account, &container, "bad host").is_err());
    }

    #[test]
    fn only_normal_https_urls_are_issuers() {
        for text in ["https://a.example/b", "https://a.example", "https://a.example:8443/b/c"] {
            assert_eq!(text.parse::<IssuerUrl>().unwrap().as_str(), text);
        }
        for (text, reason) in [
            ("http://a.example/b", "it does not begin with `https://`"),
            ("https://a.example/b/", "it ends with a slash"),
            ("https://a.example/", "it ends with a slash"),
            ("https://a.example/b?c", "it has a query or a fragment"),
            ("https://a.example/b#", "it has a query or a fragment"),
            ("https://u@a.example/b", "it has a user name or a password"),
            ("https://A.example/b", "clients change it to `https://a.example/b`"),
            ("https://a.example:443/b", "clients change it to `https://a.example/b`"),
            ("https://a.example/x/../b", "clients change it to `https://a.example/b`"),
            (" https://a.example/b", "clients change it to `https://a.example/b`"),
            ("a.example/b", "relative URL without a base"),
        ] {
            assert_eq!(text.parse::<IssuerUrl>().unwrap_err().reason, reason, "{text:?}");
        }
    }
}
