//! etcd and kube-apiserver without a node.

use std::fs::Permissions;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::SystemClock;
use parking_lot::Mutex;
use rcgen::KeyPair;
use serde_json::json;
use tempfile::TempDir;
use zeroize::Zeroizing;

use crate::bearer_token::BearerToken;
use crate::certificates;
use crate::error::{ControlPlaneError, file_error};
use crate::ports::choose_ports;
use crate::private_files;

/// An API server with its etcd on loopback. Dropping the value kills both processes and removes their
/// directory.
#[derive(Debug)]
pub struct ControlPlane {
    directory: TempDir,
    options: ControlPlaneOptions,
    port: u16,
    etcd: Mutex<Child>,
    api_server: Mutex<Option<Child>>,
    etcd_url: String,
    token: BearerToken,
}

/// The address and credentials of etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdAccess {
    /// The URL of etcd: gRPC, and JSON below `/v3/`.
    pub url: String,
    /// The file with the CA certificate, in PEM.
    pub authority: PathBuf,
    /// The file with the client certificate, in PEM.
    pub certificate: PathBuf,
    /// The file with the key of the client certificate, in PEM.
    pub key: PathBuf,
}

/// Programs, users and flags of a [`ControlPlane`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlPlaneOptions {
    /// The path of the program `etcd`.
    pub etcd: PathBuf,
    /// The path of the program `kube-apiserver`.
    pub kube_apiserver: PathBuf,
    /// Users besides [`ControlPlane::ADMINISTRATOR`]. They can do only what RBAC grants them.
    pub users: Vec<String>,
    /// Additional flags of the API server, without the leading dashes.
    pub flags: Vec<(String, String)>,
}

impl ControlPlaneOptions {
    /// Creates options with both programs and without additional users or flags.
    pub const fn new(etcd: PathBuf, kube_apiserver: PathBuf) -> Self {
        Self { etcd, kube_apiserver, users: Vec::new(), flags: Vec::new() }
    }

    /// Adds a user, who can do only what RBAC grants.
    #[must_use]
    pub fn with_user(mut self, name: &str) -> Self {
        self.users.push(name.to_owned());
        self
    }

    /// Adds a flag of the API server, without the leading dashes.
    #[must_use]
    pub fn with_flag(mut self, name: &str, value: &str) -> Self {
        self.flags.push((name.to_owned(), value.to_owned()));
        self
    }
}

impl ControlPlane {
    /// The user in the group `system:masters`.
    pub const ADMINISTRATOR: &str = "administrator";

    /// Starts both programs and waits until the API server is ready.
    ///
    /// # Errors
    /// Returns an error if a program cannot be started or the API server does not become ready.
    pub async fn start(options: ControlPlaneOptions) -> Result<Self, ControlPlaneError> {
        let temporary = std::env::temp_dir();
        let directory = tempfile::Builder::new()
            .prefix("ly-api-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(&temporary)
            .map_err(file_error("create a directory in", &temporary))?;
        let place = directory.path();
        let [client, peer, port] = choose_ports()?;
        let store_url = loopback_url("https", client);
        let token = write_user_files(place, &options.users, port)?;
        certificates::write_certificates(place)?;
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
        let private_key = Zeroizing::new(key.serialize_pem());
        private_files::write_private_file(&place.join("service-account.key"), &private_key)?;
        private_files::write_private_file(
            &place.join("service-account.pub"),
            &key.public_key_pem(),
        )?;
        let store = start_etcd(&options, place, &store_url, &loopback_url("https", peer))?;
        let plane = Self {
            etcd: Mutex::new(store),
            api_server: Mutex::new(None),
            options,
            port,
            etcd_url: store_url,
            token,
            directory,
        };
        plane.start_api_server().await?;
        Ok(plane)
    }

    /// The kubeconfig of a user.
    pub fn kubeconfig_path(&self, user: &str) -> PathBuf {
        self.directory.path().join(kubeconfig_name(user))
    }

    /// The URL of the API server.
    pub fn url(&self) -> String {
        loopback_url("https", self.port)
    }

    /// The address and credentials of etcd.
    pub fn etcd_access(&self) -> EtcdAccess {
        let file = |name| self.directory.path().join(name);
        EtcdAccess {
            url: self.etcd_url.clone(),
            authority: file(certificates::CA_FILE),
            certificate: file(certificates::ETCD_CLIENT_FILES.certificate),
            key: file(certificates::ETCD_CLIENT_FILES.key),
        }
    }

    /// The token of the administrator. Every start generates a new token, because every user of the machine
    /// can reach the port.
    pub fn administrator_token(&self) -> &BearerToken {
        &self.token
    }

    /// The temporary directory of the control plane, which is removed when the value is dropped.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Kills the API server. etcd keeps running.
    pub fn kill_api_server(&self) {
        if let Some(mut server) = self.api_server.lock().take() {
            kill_and_wait(&mut server);
        }
    }

    /// Starts the API server on the port that it had before.
    ///
    /// # Errors
    /// Returns an error if the program cannot be started or does not become ready.
    pub async fn start_api_server(&self) -> Result<(), ControlPlaneError> {
        let place = self.directory.path();
        let file = |name: &str| place.join(name).display().to_string();
        let flags = [
            ("etcd-servers", self.etcd_url.clone()),
            ("etcd-cafile", file(certificates::CA_FILE)),
            ("etcd-certfile", file(certificates::ETCD_CLIENT_FILES.certificate)),
            ("etcd-keyfile", file(certificates::ETCD_CLIENT_FILES.key)),
            ("bind-address", Ipv4Addr::LOCALHOST.to_string()),
            ("secure-port", self.port.to_string()),
            ("tls-cert-file", file(certificates::API_SERVER_FILES.certificate)),
            ("tls-private-key-file", file(certificates::API_SERVER_FILES.key)),
            ("service-account-issuer", "https://issuer.example".to_owned()),
            ("service-account-signing-key-file", file("service-account.key")),
            ("service-account-key-file", file("service-account.pub")),
            ("authorization-mode", "RBAC".to_owned()),
            ("service-cluster-ip-range", "10.0.0.0/24".to_owned()),
            ("token-auth-file", file(TOKEN_FILE)),
            // No controller creates ServiceAccounts here, and no pod runs.
            ("disable-admission-plugins", "ServiceAccount".to_owned()),
        ];
        let program = &self.options.kube_apiserver;
        let mut server = Command::new(program);
        server.args(flags.map(|(name, value)| format!("--{name}={value}")));
        server.args(self.options.flags.iter().map(|(name, value)| format!("--{name}={value}")));
        let log = place.join("kube-apiserver.log");
        *self.api_server.lock() = Some(spawn(&mut server, program, &log)?);
        self.wait_until_ready(&log).await
    }

    async fn wait_until_ready(&self, log: &Path) -> Result<(), ControlPlaneError> {
        let clock = SystemClock::shared();
        let url = format!("{}/readyz", loopback_url("https", self.port));
        let authority = self.directory.path().join(certificates::CA_FILE);
        let authority = std::fs::read(&authority).map_err(file_error("read", &authority))?;
        let authority = reqwest::Certificate::from_pem(&authority).ok();
        let builder = reqwest::Client::builder().no_proxy().tls_certs_only(authority);
        let client = builder.build().ok();
        for _ in 0..READY_TIMEOUT.as_millis() / POLL_INTERVAL.as_millis() {
            let request = client.as_ref().map(|it| it.get(&url).bearer_auth(self.token.expose()));
            if let Some(request) = request
                && let Ok(answer) = request.send().await
                && answer.text().await.is_ok_and(|text| text == "ok")
            {
                return Ok(());
            }
            self.check_exited_processes()?;
            clock.sleep(POLL_INTERVAL).await;
        }
        Err(ControlPlaneError::NotReady { timeout: READY_TIMEOUT, log: log_tail(log) })
    }

    /// Returns an error if etcd or the API server has exited.
    fn check_exited_processes(&self) -> Result<(), ControlPlaneError> {
        let has_ended = |child: &mut Child| matches!(child.try_wait(), Ok(Some(_)));
        let store = has_ended(&mut self.etcd.lock()).then_some("etcd");
        let server =
            || self.api_server.lock().as_mut().is_some_and(has_ended).then_some("kube-apiserver");
        let Some(program) = store.or_else(server) else { return Ok(()) };
        let log = self.directory.path().join(program).with_extension("log");
        Err(ControlPlaneError::Exited { program, log: log_tail(&log) })
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        self.kill_api_server();
        kill_and_wait(&mut self.etcd.lock());
    }
}

/// A control plane that the trials of a suite share.
pub type SharedControlPlane = Arc<ControlPlane>;

/// The last 20 lines of a log.
fn log_tail(log: &Path) -> String {
    let log = std::fs::read_to_string(log).unwrap_or_default();
    let last: Vec<_> = log.lines().rev().take(20).collect();
    last.into_iter().rev().collect::<Vec<_>>().join("\n")
}

/// Writes the token file and the kubeconfig of every user. Returns the token of the administrator.
fn write_user_files(
    place: &Path,
    users: &[String],
    port: u16,
) -> Result<BearerToken, ControlPlaneError> {
    let administrator = ControlPlane::ADMINISTRATOR;
    let of_administrator = BearerToken::random();
    let mut tokens = Zeroizing::new(String::new());
    let mut user_of = |token: &BearerToken, user: &str, rest: &str| {
        let kubeconfig = render_kubeconfig(token, place, port);
        tokens.extend([token.expose(), ",", user, rest, "\n"]);
        private_files::write_private_file(&place.join(kubeconfig_name(user)), &kubeconfig)
    };
    user_of(&of_administrator, administrator, ",1,system:masters")?;
    for (uid, user) in (2_u32..).zip(users) {
        user_of(&BearerToken::random(), user, &format!(",{uid},"))?;
    }
    private_files::write_private_file(&place.join(TOKEN_FILE), &tokens)?;
    Ok(of_administrator)
}

fn start_etcd(
    options: &ControlPlaneOptions,
    place: &Path,
    client: &str,
    peer: &str,
) -> Result<Child, ControlPlaneError> {
    let etcd = &options.etcd;
    let mut store = Command::new(etcd);
    store.arg("--unsafe-no-fsync").arg("--data-dir").arg(place.join("etcd"));
    store.args(["--listen-client-urls", client, "--advertise-client-urls", client]);
    store.args(["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]);
    store.args(["--initial-cluster", &format!("default={peer}")]);
    let certificates::CertificateFiles { certificate, key } = certificates::ETCD_FILES;
    for side in ["", "peer-"] {
        store.arg(format!("--{side}client-cert-auth"));
        for (flag, name) in [
            ("cert-file", certificate),
            ("key-file", key),
            ("trusted-ca-file", certificates::CA_FILE),
        ] {
            store.arg(format!("--{side}{flag}")).arg(place.join(name));
        }
    }
    spawn(&mut store, etcd, &place.join("etcd.log"))
}

fn loopback_url(scheme: &str, port: u16) -> String {
    format!("{scheme}://{}:{port}", Ipv4Addr::LOCALHOST)
}

fn kubeconfig_name(user: &str) -> String {
    format!("{user}.kubeconfig")
}

fn render_kubeconfig(token: &BearerToken, place: &Path, port: u16) -> Zeroizing<String> {
    let authority = place.join(certificates::CA_FILE);
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{
            "name": "here",
            "cluster": {"server": loopback_url("https", port), "certificate-authority": authority},
        }],
        "users": [{"name": "me", "user": {"token": token.expose()}}],
    });
    Zeroizing::new(kubeconfig.to_string())
}

fn spawn(command: &mut Command, program: &Path, log: &Path) -> Result<Child, ControlPlaneError> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(private_files::open_private_file_for_append(log)?);
    command.spawn().map_err(file_error("start", program))
}

/// Kills a child process and collects its status. A process that has already exited is not an error.
fn kill_and_wait(process: &mut Child) {
    process.kill().ok();
    process.wait().ok();
}

/// The token file of the API server (`--token-auth-file`).
const TOKEN_FILE: &str = "tokens.csv";
const READY_TIMEOUT: Duration = Duration::from_mins(1);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credential_files_are_readable_by_the_owner_only() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path();
        let token = write_user_files(place, &["reader".to_owned()], 1).unwrap();
        certificates::write_certificates(place).unwrap();
        drop(private_files::open_private_file_for_append(&place.join("etcd.log")).unwrap());
        let mut names = Vec::new();
        for entry in std::fs::read_dir(place).unwrap() {
            let entry = entry.unwrap();
            let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{}", entry.path().display());
            names.push(entry.file_name().into_string().unwrap());
        }
        assert!(names.len() >= 11, "{names:?}");
        let read = |name: &str| std::fs::read_to_string(place.join(name)).unwrap();
        let tokens = read(TOKEN_FILE);
        let first = format!("{},administrator,1,system:masters", token.expose());
        let second = tokens.lines().nth(1).unwrap();
        assert_eq!(tokens.lines().next(), Some(first.as_str()));
        assert!(second.ends_with(",reader,2,"), "the second user has no group");
        assert!(read("administrator.kubeconfig").contains(token.expose()));
        assert!(!read("reader.kubeconfig").contains(token.expose()));
    }
}
