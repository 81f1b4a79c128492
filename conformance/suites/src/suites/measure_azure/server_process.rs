//! The measured servers as processes.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use lanyard_clock::{Clock, SystemClock};
use libtest_mimic::Failed;
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use url::Url;

use super::https_connection::HttpsTarget;
use super::server_certificate::ServerCertificate;
use crate::process_usage::{self, ProcessMemory};
use crate::waiting::eventually;

/// A running server. Dropping it kills the process.
#[derive(Debug)]
pub(super) struct ServerProcess {
    child: Child,
    /// The rest of the standard output. The server would fail to write if it were closed.
    _output: BufReader<ChildStdout>,
    address: SocketAddr,
    started: StartTime,
}

/// The time at which a process was started.
#[derive(Debug, Clone, Copy)]
struct StartTime(SystemClock);

/// A running `lanyard azure serve`.
#[derive(Debug)]
pub(super) struct LanyardServer {
    pub(super) process: ServerProcess,
    /// The certificate of the local authority, in PEM.
    authority_pem: String,
    /// The URL of the control API.
    pub(super) control_url: String,
}

/// Where a local Azure stores its state.
#[derive(Debug, Clone, Copy)]
pub(super) enum StateStorage<'a> {
    Memory,
    Directory(&'a Path),
}

/// The settings of a measured local Azure: more role assignments than the limit of a subscription.
const SETTINGS: &str = r#"{ "roleAssignmentLimits": { "inSubscription": 1000000 } }"#;

/// The line that `lanyard azure serve --output json` prints when it listens.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ServeSessionLine {
    address: SocketAddr,
    control: String,
    ca_file: PathBuf,
}

impl ServerProcess {
    /// Starts a program and reads its standard output up to the first line that has an address for `parse`.
    fn start(
        command: &mut Command,
        log: &Path,
        parse: impl Fn(&str) -> Option<SocketAddr>,
    ) -> Result<(Self, String), Failed> {
        let log = File::options().create(true).append(true).open(log)?;
        let started = StartTime(SystemClock::new());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn()?;
        let mut output = BufReader::new(child.stdout.take().ok_or("a process has no output")?);
        let mut line = String::new();
        while output.read_line(&mut line)? > 0 {
            if let Some(address) = parse(&line) {
                return Ok((Self { child, _output: output, address, started }, line));
            }
            line.clear();
        }
        drop(child.kill());
        Err(format!("{} exited before it listened: {}", program_name(command), child.wait()?)
            .into())
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn memory(&self) -> Result<ProcessMemory, Failed> {
        process_usage::process_memory(self.pid())
    }

    /// Stops the process with SIGTERM, so that it stores its state.
    pub(super) async fn stop(mut self) -> Result<(), Failed> {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
        kill_process(pid.ok_or("a process has no id")?, Signal::TERM)?;
        eventually("the server exits", async || Ok(self.child.try_wait()?.is_some())).await
    }

    /// The time since the process was started.
    pub(super) fn age(&self) -> Duration {
        self.started.0.monotonic()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // The process may have exited.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl LanyardServer {
    /// Starts the local Azure for a HostedCluster. `directory` is for its session and its log.
    pub(super) fn start(
        program: &Path,
        hosted_cluster: &Path,
        storage: StateStorage<'_>,
        directory: &Path,
    ) -> Result<Self, Failed> {
        let mut command = Command::new(program);
        command.args(["azure", "serve", "--listen", "127.0.0.1:0", "--output", "json", "--file"]);
        command.arg(hosted_cluster);
        let settings = directory.join("settings.json");
        fs::write(&settings, SETTINGS)?;
        command.arg("--settings").arg(settings);
        // A local Azure in memory writes its address into the user's directory of run-time files.
        command.env("XDG_RUNTIME_DIR", directory);
        if let StateStorage::Directory(state) = storage {
            command.arg("--state").arg(state);
        }
        let parse = |line: &str| {
            let session: ServeSessionLine = serde_json::from_str(line).ok()?;
            Some(session.address)
        };
        let (process, line) =
            ServerProcess::start(&mut command, &directory.join("lanyard.log"), parse)?;
        let session: ServeSessionLine = serde_json::from_str(&line)?;
        let authority_pem = fs::read_to_string(session.ca_file)?;
        Ok(Self { process, authority_pem, control_url: session.control })
    }

    /// A host of Azure behind the proxy.
    pub(super) fn target(&self, host: &str) -> Result<HttpsTarget, Failed> {
        HttpsTarget::behind_proxy(self.process.address(), host, &self.authority_pem)
    }
}

/// Starts the server that returns the response in a file to every request.
pub(super) fn start_bare_server(
    program: &Path,
    certificate: &ServerCertificate,
    response: &Path,
    directory: &Path,
) -> Result<ServerProcess, Failed> {
    let mut command = Command::new(program);
    command.arg("--certificate").arg(&certificate.chain_file);
    command.arg("--key").arg(&certificate.key_file).arg("--response").arg(response);
    let parse = |line: &str| line.trim().parse().ok();
    Ok(ServerProcess::start(&mut command, &directory.join("bare-tls-server.log"), parse)?.0)
}

/// A program and its arguments.
fn program_name(command: &Command) -> String {
    let program = Path::new(command.get_program());
    program.file_name().unwrap_or_default().display().to_string()
}

/// Starts Azurite's blob service with one account, without its access log.
///
/// `script` is `azurite-blob`. With a `location`, blobs are stored there, otherwise in memory.
pub(super) fn start_azurite(
    script: &Path,
    certificate: &ServerCertificate,
    account: &str,
    location: Option<&Path>,
    directory: &Path,
) -> Result<ServerProcess, Failed> {
    let mut command = Command::new("node");
    command.arg(script).args(["--silent", "--disableTelemetry", "--blobPort", "0", "--cert"]);
    command.arg(&certificate.chain_file).arg("--key").arg(&certificate.key_file);
    command.env("AZURITE_ACCOUNTS", account).current_dir(directory);
    match location {
        Some(location) => command.arg("--location").arg(location),
        None => command.arg("--inMemoryPersistence"),
    };
    let parse = |line: &str| {
        let url: Url = line.split_whitespace().last()?.parse().ok()?;
        line.contains(AZURITE_LISTENS).then(|| url.socket_addrs(|| None).ok()?.pop())?
    };
    Ok(ServerProcess::start(&mut command, &directory.join("azurite.log"), parse)?.0)
}

/// The text of the line with which Azurite prints its address.
const AZURITE_LISTENS: &str = "successfully listens on";
