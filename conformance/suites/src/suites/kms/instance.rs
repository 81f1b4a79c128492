//! A plugin as a process: ours, or that of the upstream project.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lanyard_cluster::choose_ports;
use lanyard_grpc::kms_v1beta1::key_management_service_client::KeyManagementServiceClient as ClientV1;
use lanyard_grpc::kms_v2::key_management_service_client::KeyManagementServiceClient as ClientV2;
use libtest_mimic::Failed;
use serde_json::Value;
use tonic::transport::Channel;

use super::{Key, Stage, socket_path};
use crate::daemon::Daemon;
use crate::suites::chain;

/// Which plugin.
#[derive(Debug, Clone, Copy)]
pub(super) enum Program<'a> {
    Ours { layout: &'a str },
    Theirs,
}

/// What an instance is made of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Made<'a> {
    pub(super) name: &'a str,
    pub(super) key: &'a Key,
    pub(super) program: Program<'a>,
}

/// A plugin that runs.
#[derive(Debug)]
pub(super) struct Instance {
    daemon: Option<Daemon>,
    command: Vec<String>,
    program: PathBuf,
    environment: crate::program::Environment,
    name: String,
    directory: PathBuf,
    socket: PathBuf,
    health: u16,
}

/// How long a plugin may take to listen.
const START: Duration = Duration::from_secs(20);

impl Instance {
    /// Starts a plugin with a configuration file, and waits until its socket is there.
    pub(super) async fn start(
        stage: &Stage,
        made: Made<'_>,
        configuration: &Value,
    ) -> Result<Self, Failed> {
        let name = format!("{}-{}", made.name, stage.number());
        let file = stage.directory.join(format!("{name}.json"));
        fs::write(&file, configuration.to_string()).map_err(chain)?;
        let socket = socket_path(&stage.directory, &name);
        let [health, metrics] = choose_ports().map_err(chain)?;
        let Key { vault, name: key, version } = made.key;
        let mut command = vec![
            format!("--keyvault-name={vault}"),
            format!("--key-name={key}"),
            format!("--key-version={version}"),
            format!("--listen-addr=unix://{}", socket.display()),
            format!("--config-file-path={}", file.display()),
            format!("--healthz-port={health}"),
            format!("--metrics-addr={metrics}"),
            "-v=1".to_owned(),
        ];
        let (program, environment) = match made.program {
            Program::Ours { layout } => {
                command.insert(0, "kms".to_owned());
                command.push(format!("--ciphertext-layout={layout}"));
                (stage.programs.lanyard.clone(), stage.azure.environment_of_ours())
            }
            Program::Theirs => (stage.programs.kubernetes_kms.clone(), stage.azure.environment()),
        };
        let directory = stage.directory.clone();
        let mut instance =
            Self { daemon: None, command, program, environment, name, directory, socket, health };
        instance.start_again().await?;
        Ok(instance)
    }

    /// Starts the process, again after it was ended or killed.
    pub(super) async fn start_again(&mut self) -> Result<(), Failed> {
        let mut command = Command::new(&self.program);
        command.args(&self.command).envs(&self.environment);
        let daemon = Daemon::start(&self.name, &mut command, &self.directory);
        let mut daemon = daemon.map_err(chain)?;
        let socket = self.socket.clone();
        let listens = async || std::os::unix::net::UnixStream::connect(&socket).is_ok();
        daemon.await_until("listening", START, listens).await.map_err(chain)?;
        self.daemon = Some(daemon);
        Ok(())
    }

    /// Asks the process to end, as a kubelet does.
    pub(super) async fn end(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            daemon.end().await;
        }
    }

    /// Kills the process, which leaves its socket behind.
    pub(super) fn kill(&mut self) {
        drop(self.daemon.take());
    }

    /// The socket.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// A client of version 2.
    pub(super) fn v2(&self) -> ClientV2<Channel> {
        ClientV2::new(lanyard_grpc::connect(&self.socket))
    }

    /// A client of version 1.
    pub(super) fn v1(&self) -> ClientV1<Channel> {
        ClientV1::new(lanyard_grpc::connect(&self.socket))
    }

    /// The status and the text of a health page.
    pub(super) async fn page(&self, path: &str) -> Result<(u16, String), Failed> {
        let client = reqwest::Client::builder().no_proxy().build().map_err(chain)?;
        let url = format!("http://{}:{}{path}", Ipv4Addr::LOCALHOST, self.health);
        let answer = client.get(url).send().await.map_err(chain)?;
        let status = answer.status().as_u16();
        Ok((status, answer.text().await.map_err(chain)?))
    }
}
