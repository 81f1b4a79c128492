//! The local Azure as a process, and its control API.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;
use thiserror::Error;

use crate::custom_cloud::{CUSTOM_CLOUD_DOMAIN, CustomCloudUrls};

/// The local Azure did not start, or its control API failed.
#[derive(Debug, Error)]
pub(crate) enum LocalAzureError {
    #[error("the directory of the local Azure could not be written")]
    Directory(#[source] std::io::Error),
    #[error("`{}` could not be started", program.display())]
    Start {
        program: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the local Azure exited before it printed its addresses")]
    NoSessionLine,
    #[error("unexpected output of the local Azure: {line}")]
    UnexpectedOutput {
        line: String,
        #[source]
        source: serde_json::Error,
    },
    #[error("the control API did not respond to `{path}`")]
    Unreachable {
        path: String,
        #[source]
        source: reqwest::Error,
    },
    #[error("the control API returned {status} for `{path}`: {body}")]
    ErrorResponse { path: String, status: u16, body: String },
}

/// A running local Azure. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct LocalAzure {
    program: PathBuf,
    child: Child,
    session: LocalAzureSession,
    control_api: ControlApi,
    directory: TempDir,
}

/// The control API of a local Azure, which runs as a process or in a pod.
#[derive(Debug, Clone)]
pub(crate) struct ControlApi {
    url: String,
    client: reqwest::Client,
}

#[derive(Debug, Deserialize)]
struct RequestLogPage {
    value: Vec<LoggedRequest>,
}

/// An entry of the request log.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LoggedRequest {
    /// Starts at 1.
    pub(crate) sequence: u64,
    pub(crate) method: String,
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) api_version: Option<String>,
    pub(crate) user_agent: Option<String>,
    /// The service that replied; `None` for unknown hosts.
    pub(crate) service: Option<String>,
    pub(crate) operation: Option<String>,
    /// The fault rule that changed the reply.
    pub(crate) fault: Option<String>,
    pub(crate) status: u16,
}

/// The output of `lanyard azure serve --output json` once it listens.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LocalAzureSession {
    proxy: String,
    control: String,
    /// The URL of Azure Resource Manager in the custom cloud.
    custom_cloud: String,
    ca_file: PathBuf,
    ca_bundle: PathBuf,
}

impl LocalAzure {
    /// Starts the program for a HostedCluster in YAML and waits until it listens.
    pub(crate) fn start(lanyard: &Path, hosted_cluster: &str) -> Result<Self, LocalAzureError> {
        let directory = TempDir::new().map_err(LocalAzureError::Directory)?;
        let file = directory.path().join("hostedcluster.yaml");
        fs::write(&file, hosted_cluster).map_err(LocalAzureError::Directory)?;
        let mut command = Command::new(lanyard);
        command.args(["azure", "serve", "--listen", "127.0.0.1:0", "--output", "json"]);
        command.args(["--cloud-domain", CUSTOM_CLOUD_DOMAIN, "--state"]);
        command.arg(directory.path().join("state")).arg("--file").arg(file);
        let start = |source| LocalAzureError::Start { program: lanyard.to_path_buf(), source };
        let mut child = command.stdout(Stdio::piped()).spawn().map_err(start)?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).map_err(start)?;
        }
        let session = parse_session(&line);
        if session.is_err() {
            kill_and_wait(&mut child);
        }
        let session = session?;
        let control = ControlApi::new(&session.control)?;
        let program = lanyard.to_path_buf();
        Ok(Self { program, child, session, control_api: control, directory })
    }

    /// The path of the program.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// The URL of the intercepting proxy.
    pub(crate) fn proxy_url(&self) -> &str {
        &self.session.proxy
    }

    /// The URLs of the custom cloud.
    pub(crate) fn custom_cloud(&self) -> CustomCloudUrls {
        CustomCloudUrls::new(&self.session.custom_cloud)
    }

    /// The file with the CA certificate, in PEM.
    pub(crate) fn ca_file(&self) -> &Path {
        &self.session.ca_file
    }

    /// The file with the CA certificate and the system's roots, in PEM.
    pub(crate) fn ca_bundle(&self) -> &Path {
        &self.session.ca_bundle
    }

    /// The temporary directory of this local Azure.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) const fn control_api(&self) -> &ControlApi {
        &self.control_api
    }
}

impl ControlApi {
    /// Creates a client for a URL, which ends in `/lanyard/v1`.
    pub(crate) fn new(url: &str) -> Result<Self, LocalAzureError> {
        // Loopback needs no proxy, so proxies of the environment are ignored.
        let client = reqwest::Client::builder().no_proxy().build().map_err(|source| {
            LocalAzureError::Unreachable { path: "control".to_owned(), source }
        })?;
        Ok(Self { url: url.to_owned(), client })
    }

    /// The URL, which ends in `/lanyard/v1`.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The requests after the one with this sequence number; 0 returns all that the log contains.
    pub(crate) async fn requests_since(
        &self,
        sequence: u64,
    ) -> Result<Vec<LoggedRequest>, LocalAzureError> {
        let page: RequestLogPage = self.get(&format!("request-log?since={sequence}")).await?;
        Ok(page.value)
    }

    /// `GET` on the control API.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, LocalAzureError> {
        self.send(path, self.client.get(self.endpoint_url(path))).await
    }

    /// `POST` on the control API.
    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<T, LocalAzureError> {
        let request = self.client.post(self.endpoint_url(path));
        let request = request.header("content-type", "application/json").body(body.to_string());
        self.send(path, request).await
    }

    /// `PUT` on the control API.
    pub(crate) async fn put<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<T, LocalAzureError> {
        let request = self.client.put(self.endpoint_url(path));
        let request = request.header("content-type", "application/json").body(body.to_string());
        self.send(path, request).await
    }

    /// `DELETE` on the control API, whatever the response contains.
    pub(crate) async fn delete(&self, path: &str) -> Result<(), LocalAzureError> {
        let unreachable = |source| LocalAzureError::Unreachable { path: path.to_owned(), source };
        let request = self.client.delete(self.endpoint_url(path)).header("x-lanyard-control", "1");
        let answer = request.send().await.map_err(unreachable)?;
        let status = answer.status().as_u16();
        if answer.status().is_success() {
            return Ok(());
        }
        let (path, body) = (path.to_owned(), answer.text().await.unwrap_or_default());
        Err(LocalAzureError::ErrorResponse { path, status, body })
    }

    /// Issues a new certificate for a component, as a new version of its vault secret.
    pub(crate) async fn rotate_credential(
        &self,
        component: &str,
        padding: usize,
    ) -> Result<Value, LocalAzureError> {
        self.post("rotate", &json!({ "component": component, "padding": padding })).await
    }

    fn endpoint_url(&self, path: &str) -> String {
        format!("{}/{path}", self.url)
    }

    async fn send<T: DeserializeOwned>(
        &self,
        path: &str,
        request: reqwest::RequestBuilder,
    ) -> Result<T, LocalAzureError> {
        let unreachable = |source| LocalAzureError::Unreachable { path: path.to_owned(), source };
        let answer = request.header("x-lanyard-control", "1").send().await.map_err(unreachable)?;
        let status = answer.status();
        let body = answer.text().await.map_err(unreachable)?;
        if !status.is_success() {
            let path = path.to_owned();
            return Err(LocalAzureError::ErrorResponse { path, status: status.as_u16(), body });
        }
        // The body may contain credentials of test clients, so the error omits it.
        serde_json::from_str(&body).map_err(|source| LocalAzureError::UnexpectedOutput {
            line: format!("the response to `{path}` has an unexpected format"),
            source,
        })
    }
}

impl Drop for LocalAzure {
    fn drop(&mut self) {
        kill_and_wait(&mut self.child);
    }
}

fn parse_session(line: &str) -> Result<LocalAzureSession, LocalAzureError> {
    if line.trim().is_empty() {
        return Err(LocalAzureError::NoSessionLine);
    }
    serde_json::from_str(line).map_err(|source| LocalAzureError::UnexpectedOutput {
        line: line.trim().to_owned(),
        source,
    })
}

/// Kills the process. Its state is in a temporary directory, so no shutdown is needed.
fn kill_and_wait(child: &mut Child) {
    // The process may have exited.
    drop(child.kill());
    drop(child.wait());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_line_is_parsed_and_other_output_is_reported() {
        let line = r#"{"address":"127.0.0.1:1","proxy":"http://127.0.0.1:1","control":"http://127.0.0.1:1/lanyard/v1","customCloud":"https://management.azure.test:1","caFile":"a","caBundle":"b","process":1}"#;
        assert_eq!(parse_session(line).expect("it is one").proxy, "http://127.0.0.1:1");
        let error = parse_session("listening on port 1").expect_err("it is none");
        assert!(error.to_string().contains("listening on port 1"), "{error}");
        assert!(matches!(parse_session("\n"), Err(LocalAzureError::NoSessionLine)));
    }

    #[test]
    fn program_that_exits_reports_no_session_line() {
        let error = LocalAzure::start(Path::new("true"), "").expect_err("it serves nothing");
        assert!(matches!(error, LocalAzureError::NoSessionLine), "{error}");
    }
}
