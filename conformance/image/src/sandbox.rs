//! A container root: the files of the image, and the files that a kubelet mounts into it.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use serde_json::json;
use tempfile::TempDir;

/// Path of the credential document in the sandbox.
pub(crate) const CREDENTIAL_PATH: &str = "/credential";
/// Path of the CA bundle in the image.
pub(crate) const CA_BUNDLE_PATH: &str = "etc/ssl/certs/ca-certificates.crt";
const PRIVATE_CA_PATH: &str = "/private-authority.pem";

/// The root of one case. Dropping it removes the directory.
pub(crate) struct ContainerSandbox(TempDir);

impl ContainerSandbox {
    /// Copies the files of the image and replaces its CA bundle with `public`, whose key the test has.
    pub(crate) fn create(image: &Path, public: &str, client_secret: &str) -> io::Result<Self> {
        let root = tempfile::tempdir()?;
        copy_directory(image, root.path())?;
        let bundle = root.path().join(CA_BUNDLE_PATH);
        if !bundle.is_file() || root.path().join("etc/hosts").exists() {
            return Err(io::Error::other("the image has no roots, or a hosts file"));
        }
        fs::write(bundle, public)?;
        create_device_nodes(root.path())?;
        fs::write(root.path().join("etc/resolv.conf"), "nameserver 127.0.0.1\n")?;
        let document = json!({
            "client_id": "11111111-1111-4111-8111-111111111111",
            "tenant_id": "22222222-2222-4222-8222-222222222222",
            "client_secret": client_secret,
            "authentication_endpoint": format!("https://{}/", crate::ENTRA_HOST),
            "not_before": "2024-01-01T00:00:00Z",
            "not_after": "2099-01-01T00:00:00Z",
            "renew_after": "2098-01-01T00:00:00Z",
            "cannot_renew_after": "2099-02-01T00:00:00Z",
        });
        fs::write(root.path().join(CREDENTIAL_PATH.trim_start_matches('/')), document.to_string())?;
        Ok(Self(root))
    }

    /// Writes a private CA into the root and returns the environment variable that names it.
    pub(crate) fn add_private_ca(&self, pem: &str) -> io::Result<String> {
        fs::write(self.0.path().join(PRIVATE_CA_PATH.trim_start_matches('/')), pem)?;
        Ok(format!("SSL_CERT_FILE={PRIVATE_CA_PATH}"))
    }

    /// Runs the program of the image and returns its standard output and standard error.
    pub(crate) fn run(&self, environment: &[String], arguments: &[&str]) -> io::Result<String> {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", "60", "chroot"]).arg(self.0.path()).arg("/lanyard");
        let variables = environment.iter().filter_map(|variable| variable.split_once('='));
        // `PATH` is for `timeout` and `chroot`, which run outside the root.
        let output = command
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .envs(variables)
            .output()?;
        let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
        said.push_str(&String::from_utf8_lossy(&output.stderr));
        Ok(said)
    }
}

/// Creates the devices that the program needs of those that every container runtime provides (OCI runtime
/// specification, "Default Devices"). The numbers are those of the kernel's device list.
fn create_device_nodes(root: &Path) -> io::Result<()> {
    let directory = root.join("dev");
    fs::create_dir(&directory)?;
    for (name, minor) in [("null", 3), ("random", 8), ("urandom", 9)] {
        let mode = Mode::from_raw_mode(0o666);
        mknodat(CWD, directory.join(name), FileType::CharacterDevice, mode, makedev(1, minor))?;
    }
    Ok(())
}

fn copy_directory(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            fs::create_dir_all(&target)?;
            copy_directory(&entry.path(), &target)?;
        } else {
            // `fs::copy` copies the mode too.
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}
