//! A KMS plugin as a process: lanyard's or upstream's.

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

use super::{KmsKeyVersion, KmsSuiteFixture, socket_path};
use crate::daemon::Daemon;
use crate::suites::failed_with_causes;

#[derive(Debug, Clone, Copy)]
pub(super) enum KmsPluginKind<'a> {
    Lanyard { layout: &'a str },
    Upstream,
}

/// The options of a plugin instance.
#[derive(Debug, Clone, Copy)]
pub(super) struct KmsPluginOptions<'a> {
    pub(super) name: &'a str,
    pub(super) key: &'a KmsKeyVersion,
    pub(super) kind: KmsPluginKind<'a>,
}

/// A running plugin.
#[derive(Debug)]
pub(super) struct KmsPluginProcess {
    daemon: Option<Daemon>,
    command: Vec<String>,
    program: PathBuf,
    environment: crate::client_program::EnvironmentVariables,
    name: String,
    directory: PathBuf,
    socket: PathBuf,
    health_port: u16,
}

/// How long a plugin may take to listen.
const START_TIMEOUT: Duration = Duration::from_secs(20);

impl KmsPluginProcess {
    /// Starts a plugin with a configuration file, and waits until it listens.
    pub(super) async fn start(
        fixture: &KmsSuiteFixture,
        options: KmsPluginOptions<'_>,
        configuration: &Value,
    ) -> Result<Self, Failed> {
        let name = format!("{}-{}", options.name, fixture.next_instance_number());
        let file = fixture.directory.join(format!("{name}.json"));
        fs::write(&file, configuration.to_string()).map_err(failed_with_causes)?;
        let socket = socket_path(&fixture.directory, &name);
        let [health, metrics] = choose_ports().map_err(failed_with_causes)?;
        let KmsKeyVersion { vault, name: key, version } = options.key;
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
        let (program, environment) = match options.kind {
            KmsPluginKind::Lanyard { layout } => {
                command.insert(0, "kms".to_owned());
                command.push(format!("--ciphertext-layout={layout}"));
                (fixture.programs.lanyard.clone(), fixture.azure.lanyard_environment())
            }
            KmsPluginKind::Upstream => {
                (fixture.programs.kubernetes_kms.clone(), fixture.azure.client_environment())
            }
        };
        let directory = fixture.directory.clone();
        let mut instance = Self {
            daemon: None,
            command,
            program,
            environment,
            name,
            directory,
            socket,
            health_port: health,
        };
        instance.restart().await?;
        Ok(instance)
    }

    /// Starts the process, or starts it again after it was stopped or killed.
    pub(super) async fn restart(&mut self) -> Result<(), Failed> {
        let mut command = Command::new(&self.program);
        command.args(&self.command).envs(&self.environment);
        let daemon = Daemon::start(&self.name, &mut command, &self.directory);
        let mut daemon = daemon.map_err(failed_with_causes)?;
        let socket = self.socket.clone();
        let listens = async || std::os::unix::net::UnixStream::connect(&socket).is_ok();
        daemon.wait_until("listening", START_TIMEOUT, listens).await.map_err(failed_with_causes)?;
        self.daemon = Some(daemon);
        Ok(())
    }

    /// Stops the process with SIGTERM, as a kubelet does.
    pub(super) async fn stop(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            daemon.stop().await;
        }
    }

    /// Kills the process, which leaves its socket file behind.
    pub(super) fn kill(&mut self) {
        drop(self.daemon.take());
    }

    pub(super) fn socket_path(&self) -> &Path {
        &self.socket
    }

    /// A client of the KMS v2 API.
    pub(super) fn v2_client(&self) -> ClientV2<Channel> {
        ClientV2::new(lanyard_grpc::channel_to_socket(&self.socket))
    }

    /// A client of the KMS v1beta1 API.
    pub(super) fn v1_client(&self) -> ClientV1<Channel> {
        ClientV1::new(lanyard_grpc::channel_to_socket(&self.socket))
    }

    /// Fetches the status and body of a health endpoint.
    pub(super) async fn fetch_health_page(&self, path: &str) -> Result<(u16, String), Failed> {
        let client = reqwest::Client::builder().no_proxy().build().map_err(failed_with_causes)?;
        let url = format!("http://{}:{}{path}", Ipv4Addr::LOCALHOST, self.health_port);
        let answer = client.get(url).send().await.map_err(failed_with_causes)?;
        let status = answer.status().as_u16();
        Ok((status, answer.text().await.map_err(failed_with_causes)?))
    }
}
