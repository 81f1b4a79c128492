//! etcd and kube-apiserver, and nothing else: an API without a node behind it.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::SystemClock;
use parking_lot::Mutex;
use rcgen::KeyPair;
use serde_json::json;
use tempfile::TempDir;
use thiserror::Error;

/// The API could not be had.
#[derive(Debug, Error)]
pub(crate) enum ControlPlaneError {
    #[error("could not {action} {}", path.display())]
    File {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("there is no free port on loopback")]
    Port(#[source] std::io::Error),
    #[error("could not make the key of the ServiceAccount tokens")]
    Key(#[from] rcgen::Error),
    #[error("the API server was not ready after {} s; it said:\n{log}", patience.as_secs())]
    NotReady { patience: Duration, log: String },
}

/// An API server with its store on loopback. Both end, and their directory goes, with it.
#[derive(Debug)]
pub(crate) struct ControlPlane {
    directory: TempDir,
    api_server: PathBuf,
    port: u16,
    store: Mutex<Child>,
    server: Mutex<Option<Child>>,
    store_url: String,
}

/// Who may sign in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    /// May do everything.
    Administrator,
    /// May do what its roles say.
    Node,
}

impl User {
    /// The name that a role binding gives.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Administrator => "administrator",
            Self::Node => "node-plugin",
        }
    }
}

impl ControlPlane {
    /// Starts both programs and waits until the API is ready.
    pub(crate) async fn start(etcd: &Path, api_server: &Path) -> Result<Self, ControlPlaneError> {
        let directory =
            TempDir::with_prefix("ly-api-").map_err(|source| ControlPlaneError::File {
                action: "make a directory in",
                path: std::env::temp_dir(),
                source,
            })?;
        let place = directory.path();
        let [client, peer, port] = free_ports()?;
        let (store_url, peer_url) = (local("http", client), local("http", peer));
        write(
            &place.join("tokens.csv"),
            "administrator,administrator,1,system:masters\nnode-plugin,node-plugin,2,\n",
        )?;
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
        write(&place.join("service-account.key"), &key.serialize_pem())?;
        write(&place.join("service-account.pub"), &key.public_key_pem())?;
        for user in [User::Administrator, User::Node] {
            write(&place.join(kubeconfig_name(user)), &kubeconfig(user, port))?;
        }
        let mut store = Command::new(etcd);
        store.arg("--unsafe-no-fsync").arg("--data-dir").arg(place.join("etcd"));
        store.args(["--listen-client-urls", &store_url, "--advertise-client-urls", &store_url]);
        store.args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url]);
        store.args(["--initial-cluster", &format!("default={peer_url}")]);
        let store = spawn(&mut store, etcd, &place.join("etcd.log"))?;
        let plane = Self {
            store: Mutex::new(store),
            server: Mutex::new(None),
            api_server: api_server.to_owned(),
            port,
            store_url,
            directory,
        };
        plane.start_server().await?;
        Ok(plane)
    }

    /// The file with which a user signs in.
    pub(crate) fn kubeconfig(&self, user: User) -> PathBuf {
        self.directory.path().join(kubeconfig_name(user))
    }

    /// Kills the API server; the store stays.
    pub(crate) fn kill_server(&self) {
        if let Some(mut server) = self.server.lock().take() {
            end(&mut server);
        }
    }

    /// Starts the API server, on the same port as ever.
    pub(crate) async fn start_server(&self) -> Result<(), ControlPlaneError> {
        let place = self.directory.path();
        let file = |name: &str| place.join(name).display().to_string();
        let flags = [
            ("etcd-servers", self.store_url.clone()),
            ("bind-address", Ipv4Addr::LOCALHOST.to_string()),
            ("secure-port", self.port.to_string()),
            ("cert-dir", file("certificates")),
            ("service-account-issuer", "https://issuer.example".to_owned()),
            ("service-account-signing-key-file", file("service-account.key")),
            ("service-account-key-file", file("service-account.pub")),
            ("token-auth-file", file("tokens.csv")),
            ("authorization-mode", "RBAC".to_owned()),
            ("service-cluster-ip-range", "10.0.0.0/24".to_owned()),
            // Nobody makes ServiceAccounts here, and pods are not to run.
            ("disable-admission-plugins", "ServiceAccount".to_owned()),
        ];
        let mut server = Command::new(&self.api_server);
        server.args(flags.map(|(name, value)| format!("--{name}={value}")));
        let log = place.join("kube-apiserver.log");
        *self.server.lock() = Some(spawn(&mut server, &self.api_server, &log)?);
        self.wait_until_ready(&log).await
    }

    async fn wait_until_ready(&self, log: &Path) -> Result<(), ControlPlaneError> {
        let clock = SystemClock::shared();
        let url = format!("{}/readyz", local("https", self.port));
        let builder = reqwest::Client::builder().no_proxy().tls_danger_accept_invalid_certs(true);
        let client = builder.build().ok();
        for _ in 0..PATIENCE.as_millis() / PAUSE.as_millis() {
            let request = client.as_ref().map(|it| it.get(&url).bearer_auth("administrator"));
            if let Some(request) = request
                && let Ok(answer) = request.send().await
                && answer.text().await.is_ok_and(|text| text == "ok")
            {
                return Ok(());
            }
            clock.sleep(PAUSE).await;
        }
        let log = std::fs::read_to_string(log).unwrap_or_default();
        let last: Vec<_> = log.lines().rev().take(20).collect();
        let log = last.into_iter().rev().collect::<Vec<_>>().join("\n");
        Err(ControlPlaneError::NotReady { patience: PATIENCE, log })
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        self.kill_server();
        end(&mut self.store.lock());
    }
}

/// What is shared by the trials of a suite.
pub(crate) type SharedControlPlane = Arc<ControlPlane>;

fn free_ports() -> Result<[u16; 3], ControlPlaneError> {
    let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(ControlPlaneError::Port);
    // All are held until the last is known, so that they are distinct.
    let listeners = [bind()?, bind()?, bind()?];
    let mut ports = [0; 3];
    for (port, listener) in ports.iter_mut().zip(&listeners) {
        *port = listener.local_addr().map_err(ControlPlaneError::Port)?.port();
    }
    Ok(ports)
}

fn local(scheme: &str, port: u16) -> String {
    format!("{scheme}://{}:{port}", Ipv4Addr::LOCALHOST)
}

fn kubeconfig_name(user: User) -> String {
    format!("{}.kubeconfig", user.name())
}

fn kubeconfig(user: User, port: u16) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{
            "name": "here",
            "cluster": {"server": local("https", port), "insecure-skip-tls-verify": true},
        }],
        "users": [{"name": "me", "user": {"token": user.name()}}],
    })
    .to_string()
}

fn write(path: &Path, text: &str) -> Result<(), ControlPlaneError> {
    std::fs::write(path, text).map_err(file_error("write", path))
}

fn spawn(command: &mut Command, program: &Path, log: &Path) -> Result<Child, ControlPlaneError> {
    let file = File::options().create(true).append(true).open(log);
    let file = file.map_err(file_error("write", log))?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
    command.spawn().map_err(file_error("start", program))
}

/// Ends a process that was started here. One that ended by itself is fine.
fn end(process: &mut Child) {
    process.kill().ok();
    process.wait().ok();
}

fn file_error(
    action: &'static str,
    path: &Path,
) -> impl FnOnce(std::io::Error) -> ControlPlaneError {
    let path = path.to_owned();
    move |source| ControlPlaneError::File { action, path, source }
}

const PATIENCE: Duration = Duration::from_mins(1);
const PAUSE: Duration = Duration::from_millis(100);
