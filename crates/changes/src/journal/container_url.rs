//! The URL of a blob container, or of a prefix in it, that contains a journal.

use std::fmt;
use std::str::FromStr;

use lanyard_vocabulary::cloud::CloudEndpoints;
use url::Url;

/// The name of the blob.
const BLOB_NAME: &str = "journal.jsonl";

/// The URL `https://ACCOUNT.blob.core.windows.net/CONTAINER[/PREFIX]`, with any host; see [`Self::is_in`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalContainerUrl(Url);

/// The text is not the URL of a container.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseJournalUrlError {
    /// The text is not a URL.
    #[error("`{text}` is not a URL")]
    Url {
        /// The text.
        text: String,
        /// The error of the parser.
        #[source]
        source: url::ParseError,
    },
    /// The URL does not begin with `https`.
    #[error("`{scheme}` is not the scheme of a container; write an https URL")]
    Scheme {
        /// The scheme of the URL.
        scheme: String,
    },
    /// The URL has parts that the URL of a container does not have.
    #[error(
        "the URL of a container has no user, query or fragment; lanyard signs in to the container, and needs no shared access signature"
    )]
    FurtherParts,
    /// The URL names no container.
    #[error("`{url}` names no container; write https://ACCOUNT.blob.core.windows.net/CONTAINER")]
    NoContainer {
        /// The URL.
        url: String,
    },
    /// The name of the container is invalid.
    #[error(
        "`{name}` is not the name of a container: 3 to 63 lower-case letters, digits and hyphens"
    )]
    Container {
        /// The name.
        name: String,
    },
}

impl FromStr for JournalContainerUrl {
    type Err = ParseJournalUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut url = Url::parse(text)
            .map_err(|source| ParseJournalUrlError::Url { text: text.to_owned(), source })?;
        if url.scheme() != "https" {
            return Err(ParseJournalUrlError::Scheme { scheme: url.scheme().to_owned() });
        }
        let has_user = !url.username().is_empty() || url.password().is_some();
        if has_user || url.query().is_some() || url.fragment().is_some() {
            return Err(ParseJournalUrlError::FurtherParts);
        }
        let path = url.path().trim_matches('/').to_owned();
        let container = path.split('/').next().unwrap_or_default();
        if container.is_empty() {
            return Err(ParseJournalUrlError::NoContainer { url: url.to_string() });
        }
        let is_valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if !(3..=63).contains(&container.len()) || !container.chars().all(is_valid) {
            return Err(ParseJournalUrlError::Container { name: container.to_owned() });
        }
        url.set_path(&path);
        Ok(Self(url))
    }
}

impl fmt::Display for JournalContainerUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl JournalContainerUrl {
    /// The prefix with further segments.
    #[must_use]
    pub fn join(&self, segments: &[&str]) -> Self {
        let mut url = self.0.clone();
        // Only URLs without a path, such as `mailto:`, have no segments.
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        Self(url)
    }

    /// The host.
    pub fn host(&self) -> &str {
        self.0.host_str().unwrap_or_default()
    }

    /// Whether the host is that of a storage account in the cloud. A token for storage must not be sent elsewhere.
    pub fn is_in(&self, endpoints: &CloudEndpoints) -> bool {
        let suffix = format!(".{}", endpoints.blob_suffix());
        let account = self.host().strip_suffix(&suffix);
        self.0.port().is_none()
            && account
                .is_some_and(|it| !it.is_empty() && it.bytes().all(|b| b.is_ascii_alphanumeric()))
    }

    /// The URL of the blob.
    pub(super) fn blob(&self) -> Url {
        self.join(&[BLOB_NAME]).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hosts_of_storage_accounts_are_in_the_cloud() {
        use lanyard_vocabulary::cloud::PUBLIC;
        for (host, expected) in [
            ("harbour.blob.core.windows.net", true),
            ("HARBOUR.blob.core.windows.net", true),
            ("harbour.blob.core.windows.net.example.com", false),
            ("harbour.blob.core.usgovcloudapi.net", false),
            ("a.harbour.blob.core.windows.net", false),
            ("xblob.core.windows.net", false),
            ("harbour.blob.core.windows.net:8443", false),
            ("example.com", false),
        ] {
            let url: JournalContainerUrl = format!("https://{host}/journals").parse().unwrap();
            assert_eq!(url.is_in(&PUBLIC), expected, "{host}");
        }
    }

    #[test]
    fn journal_is_a_blob_below_the_prefix() {
        for (text, blob) in [
            (
                "https://acct.blob.core.windows.net/lanyard",
                "https://acct.blob.core.windows.net/lanyard/journal.jsonl",
            ),
            (
                "https://acct.blob.core.chinacloudapi.cn/lanyard/team a/",
                "https://acct.blob.core.chinacloudapi.cn/lanyard/team%20a/journal.jsonl",
            ),
            (
                "https://blobs.example.com:8443/con/x/y",
                "https://blobs.example.com:8443/con/x/y/journal.jsonl",
            ),
        ] {
            let url: JournalContainerUrl = text.parse().unwrap();
            assert_eq!(url.blob().as_str(), blob);
        }
        let base: JournalContainerUrl = "https://a.example.com/con".parse().unwrap();
        assert_eq!(base.join(&["s", "n"]).to_string(), "https://a.example.com/con/s/n");
    }

    #[test]
    fn url_without_a_container_is_rejected() {
        for (text, expected) in [
            ("https://", "is not a URL"),
            ("http://a.example.com/con", "write an https URL"),
            ("https://a.example.com/con?sig=x", "no shared access signature"),
            ("https://a:b@a.example.com/con", "no user"),
            ("https://a.example.com//", "names no container"),
            ("https://a.example.com/Con", "`Con` is not the name of a container"),
        ] {
            let error = text.parse::<JournalContainerUrl>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
            assert!(!error.contains("sig=x"), "{error}");
        }
    }
}
