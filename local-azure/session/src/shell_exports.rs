//! The environment variables that send the requests of Azure clients to the local Azure, and the files to
//! which they point.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use crate::file_replacement::replace_file;
use crate::session_environment::SessionEnvironment;
use crate::session_error::SessionError;
use crate::shell_syntax::ShellSyntax;
use crate::test_credentials::LocalTestCredentials;

/// The files with the certificates that clients must trust.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustFiles {
    /// The local CA certificate alone, in PEM.
    pub(crate) local_ca: PathBuf,
    /// The system's roots and the local CA certificate in PEM, so that a shell trusts both.
    pub(crate) bundle: PathBuf,
    /// A separate configuration directory for the Azure CLI.
    azure_config: PathBuf,
}

/// Environment variables for a shell or a child process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellExports {
    /// The variables to set.
    set: Vec<(&'static str, String)>,
    /// The variables to unset, because they would bypass the local Azure, or send it real tokens.
    unset: Vec<&'static str>,
}

/// The variable with the URL of Azure Resource Manager in the custom cloud.
const CUSTOM_CLOUD_VARIABLE: &str = "LANYARD_AZURE_CUSTOM_CLOUD";
/// Stands for the address when only the names of variables matter.
const UNUSED_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Variables that select another token source or another endpoint.
const CONFLICTING_VARIABLES: &[&str] = &[
    "ALL_PROXY",
    "all_proxy",
    "AZURE_AUTHORITY_HOST",
    "IDENTITY_ENDPOINT",
    "IDENTITY_HEADER",
    "IDENTITY_SERVER_THUMBPRINT",
    "IMDS_ENDPOINT",
    "MSI_ENDPOINT",
    "MSI_SECRET",
];

/// The paths of the system's CA certificates on Debian, Fedora, openSUSE and Alpine distributions.
const SYSTEM_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

impl TrustFiles {
    /// Returns the paths of the files that [`TrustFiles::write`] wrote into `directory`.
    pub(crate) fn in_directory(directory: &Path) -> Self {
        Self {
            local_ca: directory.join("ca.pem"),
            bundle: directory.join("ca-bundle.pem"),
            azure_config: directory.join("azure-cli"),
        }
    }

    /// Writes the files into `directory`, which the user must own.
    pub fn write(
        directory: &Path,
        ca_pem: &str,
        environment: &SessionEnvironment,
    ) -> Result<Self, SessionError> {
        let files = Self::in_directory(directory);
        let mut bundle = system_roots(environment);
        bundle.extend_from_slice(ca_pem.as_bytes());
        replace_file(&files.local_ca, ca_pem.as_bytes())
            .and_then(|()| replace_file(&files.bundle, &bundle))
            .map_err(|source| SessionError::WriteCertificates {
                directory: directory.to_owned(),
                source,
            })?;
        Ok(files)
    }
}

impl ShellExports {
    /// Returns the variables for a local Azure that listens at `address`.
    pub fn new(address: SocketAddr, files: &TrustFiles) -> Self {
        let proxy = format!("http://{}", connectable_address(address));
        let bundle = files.bundle.display().to_string();
        let set = vec![
            // Go, Python, Rust, .NET and the Azure CLI read the upper-case names, curl reads the lower-case
            // names.
            ("HTTPS_PROXY", proxy.clone()),
            ("https_proxy", proxy.clone()),
            // Routes requests for 169.254.169.254 to the local Azure, so that IMDS clients reach it.
            ("HTTP_PROXY", proxy.clone()),
            ("http_proxy", proxy.clone()),
            ("NO_PROXY", "127.0.0.1,localhost,::1".to_owned()),
            ("no_proxy", "127.0.0.1,localhost,::1".to_owned()),
            ("SSL_CERT_FILE", bundle.clone()),
            ("REQUESTS_CA_BUNDLE", bundle.clone()),
            ("CURL_CA_BUNDLE", bundle),
            ("NODE_EXTRA_CA_CERTS", files.local_ca.display().to_string()),
            // For clients that never send IMDS requests through a proxy, such as lanyard.
            ("AZURE_POD_IDENTITY_AUTHORITY_HOST", proxy.clone()),
            ("AZURE_CONFIG_DIR", files.azure_config.display().to_string()),
            ("AZURE_CORE_COLLECT_TELEMETRY", "false".to_owned()),
            ("LANYARD_AZURE_CONTROL", format!("{proxy}/lanyard/v1")),
        ];
        Self { set, unset: CONFLICTING_VARIABLES.to_vec() }
    }

    /// Unsets the variables that an earlier `lanyard azure env` set in this shell. It unsets the
    /// variables of credentials only if they contain those of the local Azure.
    pub fn undo(environment: &SessionEnvironment) -> Self {
        let exports = Self::new(UNUSED_ADDRESS, &TrustFiles::in_directory(Path::new("")));
        let mut unset: Vec<_> = exports.set.iter().map(|(name, _)| *name).collect();
        unset.push(CUSTOM_CLOUD_VARIABLE);
        let directory = environment.ssl_cert_file.as_deref().and_then(Path::parent);
        let credentials = directory.and_then(LocalTestCredentials::load);
        let client_id = environment.azure_client_id.as_deref();
        if let Some(credentials) = credentials.filter(|it| client_id == Some(it.client_id())) {
            unset.extend(credentials.variables().map(|(name, _)| name));
        }
        Self { set: Vec::new(), unset }
    }

    /// Makes requests to the metadata service come from a node. The name of the node is the user
    /// name at the proxy, and a path prefix for clients without a proxy.
    #[must_use]
    pub fn for_node(mut self, node: &str) -> Self {
        for (name, value) in &mut self.set {
            match *name {
                "HTTP_PROXY" | "http_proxy" => {
                    // Some clients send a user name only together with a password.
                    *value = value.replacen("://", &format!("://{node}:node@"), 1);
                }
                "AZURE_POD_IDENTITY_AUTHORITY_HOST" => {
                    *value = format!("{value}/nodes/{node}");
                }
                _ => {}
            }
        }
        self
    }

    /// Adds the URL of Azure Resource Manager in the custom cloud.
    #[must_use]
    pub fn with_custom_cloud(self, url: Option<String>) -> Self {
        self.with_variables(url.map(|url| (CUSTOM_CLOUD_VARIABLE, url)))
    }

    /// Adds variables to set.
    #[must_use]
    pub fn with_variables(
        mut self,
        variables: impl IntoIterator<Item = (&'static str, String)>,
    ) -> Self {
        self.set.extend(variables);
        self
    }

    /// The variables to set, in order.
    pub fn variables_to_set(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.set.iter().map(|(name, value)| (*name, value.as_str()))
    }

    /// The names of the variables to unset.
    pub fn variables_to_unset(&self) -> &[&'static str] {
        &self.unset
    }

    /// Formats the variables as lines for a shell.
    pub fn to_shell(&self, syntax: ShellSyntax) -> String {
        syntax.lines(self.variables_to_set(), &self.unset)
    }
}

/// Replaces an unspecified address such as `0.0.0.0` by the loopback address, to which clients can connect.
pub(crate) fn connectable_address(address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        return SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), address.port());
    }
    address
}

fn system_roots(environment: &SessionEnvironment) -> Vec<u8> {
    let named = environment.ssl_cert_file.iter().map(PathBuf::as_path);
    let usual = SYSTEM_ROOTS.iter().map(Path::new);
    let mut roots = named.chain(usual).find_map(|path| fs::read(path).ok()).unwrap_or_default();
    if !roots.is_empty() && !roots.ends_with(b"\n") {
        roots.push(b'\n');
    }
    roots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_survive_a_directory_with_spaces_and_quotes() {
        let address = SocketAddr::from(([127, 0, 0, 1], 7750));
        let shell =
            ShellExports::new(address, &TrustFiles::in_directory(Path::new("/tmp/it's here")))
                .to_shell(ShellSyntax::Bash);
        assert!(shell.contains("export HTTPS_PROXY='http://127.0.0.1:7750'\n"), "{shell}");
        assert!(shell.contains(r"'/tmp/it'\''s here/ca-bundle.pem'"), "{shell}");
    }

    #[test]
    fn variables_that_bypass_the_local_azure_are_unset() {
        let address = SocketAddr::from(([0, 0, 0, 0], 7750));
        let exports = ShellExports::new(address, &TrustFiles::in_directory(Path::new("/x")));
        assert!(exports.to_shell(ShellSyntax::Bash).contains("IDENTITY_ENDPOINT"));
        assert!(exports.variables_to_set().any(|(_, value)| value == "http://127.0.0.1:7750"));
    }

    #[test]
    fn undo_unsets_every_variable_that_was_set() {
        let files = TrustFiles::in_directory(Path::new("/x"));
        let exports = ShellExports::new(UNUSED_ADDRESS, &files)
            .with_custom_cloud(Some("https://management.azure.test".to_owned()));
        let undo = ShellExports::undo(&SessionEnvironment::default());
        let names: Vec<_> = exports.variables_to_set().map(|(name, _)| name).collect();
        assert_eq!(undo.variables_to_unset(), names);
        assert_eq!(undo.variables_to_set().count(), 0);
    }

    #[test]
    fn undo_keeps_credentials_of_the_user() {
        let directory = tempfile::tempdir().unwrap();
        let credentials = LocalTestCredentials::example();
        LocalTestCredentials::write(Some(&credentials), directory.path()).unwrap();
        let unsets_credentials = |client_id: &str| {
            let undo = ShellExports::undo(&SessionEnvironment {
                ssl_cert_file: Some(directory.path().join("ca-bundle.pem")),
                azure_client_id: Some(client_id.to_owned()),
                ..SessionEnvironment::default()
            });
            undo.variables_to_unset().contains(&"AZURE_CLIENT_SECRET")
        };
        assert!(unsets_credentials(credentials.client_id()));
        assert!(!unsets_credentials("the user's own"));
    }

    #[test]
    fn node_is_the_user_of_the_http_proxy_only() {
        let address = SocketAddr::from(([127, 0, 0, 1], 7750));
        let files = TrustFiles::in_directory(Path::new("/x"));
        let exports = ShellExports::new(address, &files).for_node("worker-1");
        let set: std::collections::BTreeMap<_, _> = exports.variables_to_set().collect();
        assert_eq!(set["HTTP_PROXY"], "http://worker-1:node@127.0.0.1:7750");
        assert_eq!(set["HTTPS_PROXY"], "http://127.0.0.1:7750");
        let host = set["AZURE_POD_IDENTITY_AUTHORITY_HOST"];
        assert_eq!(host, "http://127.0.0.1:7750/nodes/worker-1");
    }

    #[test]
    fn ca_bundle_keeps_system_roots() {
        let directory = tempfile::tempdir().unwrap();
        let roots = directory.path().join("roots.pem");
        fs::write(&roots, "ROOTS").unwrap();
        let environment =
            SessionEnvironment { ssl_cert_file: Some(roots), ..SessionEnvironment::default() };
        let files = TrustFiles::write(directory.path(), "CA\n", &environment).unwrap();
        assert_eq!(fs::read_to_string(files.bundle).unwrap(), "ROOTS\nCA\n");
        assert_eq!(fs::read_to_string(files.local_ca).unwrap(), "CA\n");
    }
}
