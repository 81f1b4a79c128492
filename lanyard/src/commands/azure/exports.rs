//! The variables that send other people's clients to the local Azure.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Variables for a shell or a child process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Exports(Vec<(String, String)>);

impl Exports {
    /// The variables for a local Azure at `address` whose files lie in `directory`.
    pub(crate) fn new(address: SocketAddr, directory: &Path) -> Self {
        let proxy = format!("http://{address}");
        let bundle = bundle_path(directory).display().to_string();
        let local_ca = local_ca_path(directory).display().to_string();
        let azure_config = directory.join("azure-cli").display().to_string();
        let pairs = [
            // Go, Python, Rust, .NET and the Azure CLI read the upper-case names, curl the lower.
            ("HTTPS_PROXY", proxy.clone()),
            ("https_proxy", proxy.clone()),
            // Carries requests for 169.254.169.254, so that IMDS clients find us.
            ("HTTP_PROXY", proxy.clone()),
            ("http_proxy", proxy.clone()),
            ("NO_PROXY", "127.0.0.1,localhost,::1".to_owned()),
            ("no_proxy", "127.0.0.1,localhost,::1".to_owned()),
            ("SSL_CERT_FILE", bundle.clone()),
            ("REQUESTS_CA_BUNDLE", bundle.clone()),
            ("CURL_CA_BUNDLE", bundle),
            ("NODE_EXTRA_CA_CERTS", local_ca),
            // The clients that refuse to ask IMDS through a proxy, ours among them.
            ("AZURE_POD_IDENTITY_AUTHORITY_HOST", proxy.clone()),
            ("AZURE_CONFIG_DIR", azure_config),
            ("AZURE_CORE_COLLECT_TELEMETRY", "false".to_owned()),
            ("LANYARD_AZURE_CONTROL", format!("{proxy}/lanyard/v1")),
        ];
        Self(pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// The variables in order.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// As lines for `eval`.
    pub(crate) fn shell(&self) -> String {
        let line = |(name, value)| format!("export {name}={}\n", quoted(value));
        self.pairs().map(line).collect::<Vec<_>>().concat()
    }
}

/// The system's roots and the local CA, so that a shell with these variables still trusts both.
pub(crate) fn bundle_path(directory: &Path) -> PathBuf {
    directory.join("ca-bundle.pem")
}

/// The local CA alone.
pub(crate) fn local_ca_path(directory: &Path) -> PathBuf {
    directory.join("ca.pem")
}

fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_survive_a_directory_with_spaces_and_quotes() {
        let exports =
            Exports::new(SocketAddr::from(([127, 0, 0, 1], 7750)), Path::new("/tmp/it's here"));
        let shell = exports.shell();
        assert!(shell.contains("export HTTPS_PROXY='http://127.0.0.1:7750'\n"), "{shell}");
        assert!(shell.contains(r"'/tmp/it'\''s here/ca-bundle.pem'"), "{shell}");
    }
}
