//! The custom cloud of the local Azure, and clients that use it without a proxy. They run in a mount namespace
//! whose `/etc/hosts` names the custom hosts, so that the clients stay unmodified and the machine stays as it is.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::file_error::FileError;

/// The domain of the custom cloud.
pub(crate) const CUSTOM_CLOUD_DOMAIN: &str = "azure.test";

/// The hosts of the custom cloud that clients of the suites use, without the domain.
const HOSTS: [&str; 6] = [
    "management",
    "login",
    "graph",
    "kv-azcli-custom.vault",
    "kv-python-custom.vault",
    "azclicustom.blob.core",
];

/// The URLs of the custom cloud.
#[derive(Debug, Serialize)]
pub(crate) struct CustomCloudUrls {
    pub(crate) resource_manager: String,
    pub(crate) authority: String,
    pub(crate) graph: String,
    /// The domain with the port.
    pub(crate) domain: String,
}

impl CustomCloudUrls {
    /// The URLs of a cloud by that of Azure Resource Manager, which ends in the port.
    pub(crate) fn new(resource_manager: &str) -> Self {
        let domain = resource_manager.trim_start_matches("https://management.").to_owned();
        Self {
            resource_manager: resource_manager.to_owned(),
            authority: format!("https://login.{domain}"),
            graph: format!("https://graph.{domain}"),
            domain,
        }
    }
}

/// Runs a program with another `/etc/hosts`.
const LAUNCHER: &str = r#"#!/bin/sh
exec unshare --user --map-root-user --mount \
    sh -c 'mount --bind "$0" /etc/hosts && exec "$@"' HOSTS_FILE PROGRAM "$@"
"#;

/// Writes a script into a directory that runs a program, and resolves the custom hosts to this machine for it.
/// Returns the path of the script.
pub(crate) fn write_custom_hosts_launcher(
    directory: &Path,
    program: &Path,
) -> Result<PathBuf, FileError> {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let (hosts, launcher) =
        (directory.join("custom-hosts"), directory.join(format!("{name}-with-custom-hosts")));
    let lines = HOSTS.map(|host| format!("127.0.0.1 {host}.{CUSTOM_CLOUD_DOMAIN}\n"));
    fs::write(&hosts, format!("127.0.0.1 localhost\n{}", lines.concat()))
        .map_err(FileError::of("write", &hosts))?;
    let program = std::path::absolute(program).map_err(FileError::of("find", program))?;
    let quoted = |path: &Path| format!("'{}'", path.display().to_string().replace('\'', r"'\''"));
    let script =
        LAUNCHER.replace("HOSTS_FILE", &quoted(&hosts)).replace("PROGRAM", &quoted(&program));
    fs::write(&launcher, script).map_err(FileError::of("write", &launcher))?;
    fs::set_permissions(&launcher, fs::Permissions::from_mode(0o700))
        .map_err(FileError::of("make executable", &launcher))?;
    Ok(launcher)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_the_domain_and_the_port_of_azure_resource_manager() {
        let urls = CustomCloudUrls::new("https://management.azure.test:7750");
        assert_eq!(urls.authority, "https://login.azure.test:7750");
        assert_eq!(urls.domain, "azure.test:7750");
    }

    #[test]
    fn launcher_quotes_its_paths() {
        let directory = tempfile::TempDir::with_prefix("it's").expect("a temporary directory");
        let launcher = write_custom_hosts_launcher(directory.path(), Path::new("/bin/echo"))
            .expect("it is writable");
        let script = fs::read_to_string(launcher).expect("it is readable");
        assert!(script.contains(r"'\''") && script.contains("'/bin/echo' \"$@\""), "{script}");
    }
}
