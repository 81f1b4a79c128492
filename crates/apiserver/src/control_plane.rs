//! etcd and kube-apiserver, and nothing else: an API without a node behind it.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::SystemClock;
use parking_lot::Mutex;
use rcgen::KeyPair;
use serde_json::json;
use tempfile::TempDir;
use uuid::Uuid;

use crate::certificates;
use crate::error::ControlPlaneError;
use crate::ports::choose_ports;

/// An API server with its store on loopback. Both end, and their directory goes, with it.
#[derive(Debug)]
pub struct ControlPlane {
    directory: TempDir,
    options: ControlPlaneOptions,
    port: u16,
    store: Mutex<Child>,
    server: Mutex<Option<Child>>,
    store_url: String,
    token: String,
}

/// What to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlPlaneOptions {
    /// The program etcd.
    pub etcd: PathBuf,
    /// The program kube-apiserver.
    pub kube_apiserver: PathBuf,
    /// Users who may sign in, beside [`ControlPlane::ADMINISTRATOR`], and may do what roles say.
    pub users: Vec<String>,
    /// Further flags of the API server, without the dashes.
    pub flags: Vec<(String, String)>,
    /// Whether both programs are in a group of processes of their own. A terminal sends Ctrl-C to
    /// the whole group: who has something to do after it needs them until then, and has to end
    /// them by dropping the control plane.
    pub in_own_group: bool,
}

impl ControlPlaneOptions {
    /// The two programs, no further user and no further flag.
    pub const fn new(etcd: PathBuf, kube_apiserver: PathBuf) -> Self {
        Self { etcd, kube_apiserver, users: Vec::new(), flags: Vec::new(), in_own_group: false }
    }

    /// With both programs in a group of processes of their own.
    #[must_use]
    pub const fn in_own_group(mut self) -> Self {
        self.in_own_group = true;
        self
    }

    /// With a user who may do what roles say.
    #[must_use]
    pub fn user(mut self, name: &str) -> Self {
        self.users.push(name.to_owned());
        self
    }

    /// With a flag of the API server, without the dashes.
    #[must_use]
    pub fn flag(mut self, name: &str, value: &str) -> Self {
        self.flags.push((name.to_owned(), value.to_owned()));
        self
    }
}

impl ControlPlaneOptions {
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        if self.in_own_group {
            command.process_group(0);
        }
        command
    }
}

impl ControlPlane {
    /// The user who may do everything.
    pub const ADMINISTRATOR: &str = "administrator";

    /// Starts both programs and waits until the API is ready.
    ///
    /// # Errors
    /// When a program cannot be started, and when the API server does not become ready.
    pub async fn start(options: ControlPlaneOptions) -> Result<Self, ControlPlaneError> {
        let directory =
            TempDir::with_prefix("ly-api-").map_err(|source| ControlPlaneError::File {
                action: "make a directory in",
                path: std::env::temp_dir(),
                source,
            })?;
        let place = directory.path();
        // Processes look in different places first.
        let [client, peer, port] = choose_ports(u64::from(std::process::id()) * 101)?;
        let store_url = local("http", client);
        let token = sign_in(place, &options.users, port)?;
        certificates::write(place)?;
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
        write(&place.join("service-account.key"), &key.serialize_pem())?;
        write(&place.join("service-account.pub"), &key.public_key_pem())?;
        let store = start_store(&options, place, &store_url, &local("http", peer))?;
        let plane = Self {
            store: Mutex::new(store),
            server: Mutex::new(None),
            options,
            port,
            store_url,
            token,
            directory,
        };
        plane.start_server().await?;
        Ok(plane)
    }

    /// The file with which a user signs in.
    pub fn kubeconfig(&self, user: &str) -> PathBuf {
        self.directory.path().join(kubeconfig_name(user))
    }

    /// Where the API server answers.
    pub fn url(&self) -> String {
        local("https", self.port)
    }

    /// Where the store answers its clients, without encryption: gRPC, and JSON below `/v3/`.
    pub fn store_url(&self) -> &str {
        &self.store_url
    }

    /// The token of the administrator. Everybody on the machine reaches the port, so it is another
    /// one each time.
    pub fn administrator_token(&self) -> &str {
        &self.token
    }

    /// A directory that goes with the control plane.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Kills the API server; the store stays.
    pub fn kill_server(&self) {
        if let Some(mut server) = self.server.lock().take() {
            end(&mut server);
        }
    }

    /// Starts the API server, on the same port as ever.
    ///
    /// # Errors
    /// When the program cannot be started, and when it does not become ready.
    pub async fn start_server(&self) -> Result<(), ControlPlaneError> {
        let place = self.directory.path();
        let file = |name: &str| place.join(name).display().to_string();
        let flags = [
            ("etcd-servers", self.store_url.clone()),
            ("bind-address", Ipv4Addr::LOCALHOST.to_string()),
            ("secure-port", self.port.to_string()),
            ("tls-cert-file", file(certificates::CERTIFICATE)),
            ("tls-private-key-file", file(certificates::KEY)),
            ("service-account-issuer", "https://issuer.example".to_owned()),
            ("service-account-signing-key-file", file("service-account.key")),
            ("service-account-key-file", file("service-account.pub")),
            ("token-auth-file", file("tokens.csv")),
            ("authorization-mode", "RBAC".to_owned()),
            ("service-cluster-ip-range", "10.0.0.0/24".to_owned()),
            // Nobody makes ServiceAccounts here, and pods are not to run.
            ("disable-admission-plugins", "ServiceAccount".to_owned()),
        ];
        let program = &self.options.kube_apiserver;
        let mut server = self.options.command(program);
        server.args(flags.map(|(name, value)| format!("--{name}={value}")));
        server.args(self.options.flags.iter().map(|(name, value)| format!("--{name}={value}")));
        let log = place.join("kube-apiserver.log");
        *self.server.lock() = Some(spawn(&mut server, program, &log)?);
        self.wait_until_ready(&log).await
    }

    async fn wait_until_ready(&self, log: &Path) -> Result<(), ControlPlaneError> {
        let clock = SystemClock::shared();
        let url = format!("{}/readyz", local("https", self.port));
        let authority = self.directory.path().join(certificates::AUTHORITY);
        let authority = std::fs::read(&authority).map_err(file_error("read", &authority))?;
        let authority = reqwest::Certificate::from_pem(&authority).ok();
        let builder = reqwest::Client::builder().no_proxy().tls_certs_only(authority);
        let client = builder.build().ok();
        for _ in 0..PATIENCE.as_millis() / PAUSE.as_millis() {
            let request = client.as_ref().map(|it| it.get(&url).bearer_auth(&self.token));
            if let Some(request) = request
                && let Ok(answer) = request.send().await
                && answer.text().await.is_ok_and(|text| text == "ok")
            {
                return Ok(());
            }
            self.look_for_ended()?;
            clock.sleep(PAUSE).await;
        }
        Err(ControlPlaneError::NotReady { patience: PATIENCE, log: last_words(log) })
    }

    /// What ended by itself will not become ready.
    fn look_for_ended(&self) -> Result<(), ControlPlaneError> {
        let has_ended = |child: &mut Child| matches!(child.try_wait(), Ok(Some(_)));
        let store = has_ended(&mut self.store.lock()).then_some("etcd");
        let server =
            || self.server.lock().as_mut().is_some_and(has_ended).then_some("kube-apiserver");
        let Some(program) = store.or_else(server) else { return Ok(()) };
        let log = self.directory.path().join(program).with_extension("log");
        Err(ControlPlaneError::Ended { program, log: last_words(&log) })
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        self.kill_server();
        end(&mut self.store.lock());
    }
}

/// What is shared by the trials of a suite.
pub type SharedControlPlane = Arc<ControlPlane>;

/// The end of a log.
fn last_words(log: &Path) -> String {
    let log = std::fs::read_to_string(log).unwrap_or_default();
    let last: Vec<_> = log.lines().rev().take(20).collect();
    last.into_iter().rev().collect::<Vec<_>>().join("\n")
}

/// Everybody's token and kubeconfig; returns the token of the administrator.
fn sign_in(place: &Path, users: &[String], port: u16) -> Result<String, ControlPlaneError> {
    let administrator = ControlPlane::ADMINISTRATOR;
    let of_administrator = Uuid::new_v4().to_string();
    let mut tokens = format!("{of_administrator},{administrator},1,system:masters\n");
    write(
        &place.join(kubeconfig_name(administrator)),
        &kubeconfig(&of_administrator, place, port),
    )?;
    for (uid, user) in (2_u32..).zip(users) {
        let token = Uuid::new_v4();
        tokens.extend([format!("{token},{user},{uid},\n")]);
        write(&place.join(kubeconfig_name(user)), &kubeconfig(&token.to_string(), place, port))?;
    }
    write(&place.join("tokens.csv"), &tokens)?;
    Ok(of_administrator)
}

fn start_store(
    options: &ControlPlaneOptions,
    place: &Path,
    client: &str,
    peer: &str,
) -> Result<Child, ControlPlaneError> {
    let etcd = &options.etcd;
    let mut store = options.command(etcd);
    store.arg("--unsafe-no-fsync").arg("--data-dir").arg(place.join("etcd"));
    store.args(["--listen-client-urls", client, "--advertise-client-urls", client]);
    store.args(["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]);
    store.args(["--initial-cluster", &format!("default={peer}")]);
    spawn(&mut store, etcd, &place.join("etcd.log"))
}

fn local(scheme: &str, port: u16) -> String {
    format!("{scheme}://{}:{port}", Ipv4Addr::LOCALHOST)
}

fn kubeconfig_name(user: &str) -> String {
    format!("{user}.kubeconfig")
}

fn kubeconfig(token: &str, place: &Path, port: u16) -> String {
    let authority = place.join(certificates::AUTHORITY);
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{
            "name": "here",
            "cluster": {"server": local("https", port), "certificate-authority": authority},
        }],
        "users": [{"name": "me", "user": {"token": token}}],
    })
    .to_string()
}

pub(crate) fn write(path: &Path, text: &str) -> Result<(), ControlPlaneError> {
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
