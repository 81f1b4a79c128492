//! The environment variables. This file is the only one that reads them.

use std::ffi::OsString;
use std::path::PathBuf;

/// The environment variables of the process. Flags override them.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProcessEnvironment {
    /// `HTTPS_PROXY`: the proxy for requests to Azure.
    pub(crate) https_proxy: Option<String>,
    /// `NO_PROXY`: hosts that are reached without the proxy.
    pub(crate) no_proxy: Option<String>,
    /// `XDG_RUNTIME_DIR`: the directory in which a running local Azure writes its address.
    pub(crate) runtime_directory: Option<PathBuf>,
    /// `LANYARD_AZURE_CONTROL`: the control API of a local Azure, as `lanyard azure env` exports it.
    pub(crate) local_azure_control: Option<String>,
    /// `SSL_CERT_FILE`: trusted CA certificates that replace those of the system.
    pub(crate) ssl_cert_file: Option<PathBuf>,
    /// `KUBERNETES_SERVICE_HOST`: the host of the Kubernetes API, in a pod.
    pub(crate) kubernetes_host: Option<String>,
    /// `KUBERNETES_SERVICE_PORT`: the port of the Kubernetes API, in a pod.
    pub(crate) kubernetes_port: Option<String>,
    /// `KUBECONFIG`, or `~/.kube/config`: the kubeconfig files, outside of a pod.
    pub(crate) kubeconfigs: Vec<PathBuf>,
    /// `AZURE_POD_IDENTITY_AUTHORITY_HOST`: an alternative to the instance metadata service.
    pub(crate) managed_identity_host: Option<String>,
    /// `AZURE_CLIENT_ID`, as set by the workload identity webhook.
    pub(crate) azure_client_id: Option<String>,
    /// `AZURE_TENANT_ID`, as set by the workload identity webhook.
    pub(crate) azure_tenant_id: Option<String>,
    /// `AZURE_FEDERATED_TOKEN_FILE`, as set by the workload identity webhook.
    pub(crate) azure_federated_token_file: Option<PathBuf>,
    /// `AZURE_AUTHORITY_HOST`, as set by the workload identity webhook.
    pub(crate) azure_authority_host: Option<String>,
    /// `AZURE_CLIENT_CERTIFICATE_PATH`: the certificate of the application `AZURE_CLIENT_ID`, with its key.
    pub(crate) azure_client_certificate_path: Option<PathBuf>,
    /// `AZURE_SUBSCRIPTION_ID`: the subscription of the infrastructure commands.
    pub(crate) azure_subscription_id: Option<String>,
    /// `LANYARD_STATE`: the directory or the blob container of the journals.
    pub(crate) journals: Option<String>,
    /// `XDG_STATE_HOME`, or `~/.local/state`: the directory of the journals.
    pub(crate) state_directory: Option<PathBuf>,
    /// `LANYARD_CRASH_AT`: the crash point at which the process kills itself.
    #[cfg(feature = "crash-points")]
    pub(crate) crash_at: Option<String>,
    /// `LANYARD_MOUNT_IN_PLACE`: mount before the files are written, as on kernels without detached mounts.
    #[cfg(feature = "crash-points")]
    pub(crate) mount_in_place: bool,
    /// `LANYARD_CLOCK_AHEAD`: the offset in seconds by which the clock of the process runs ahead.
    #[cfg(feature = "crash-points")]
    pub(crate) clock_ahead: Option<String>,
    /// `LANYARD_TEST_CONTROLLER`: serve the controller service, which csi-sanity needs besides the node
    /// service.
    #[cfg(feature = "sanity")]
    pub(crate) test_controller: bool,
}

impl ProcessEnvironment {
    /// The variables that select a running local Azure, and those that an earlier `lanyard azure env` set.
    #[cfg(feature = "up")]
    pub(crate) fn session_environment(&self) -> lanyard_emulator_session::SessionEnvironment {
        lanyard_emulator_session::SessionEnvironment {
            runtime_directory: self.runtime_directory.clone(),
            local_azure_control: self.local_azure_control.clone(),
            ssl_cert_file: self.ssl_cert_file.clone(),
            azure_client_id: self.azure_client_id.clone(),
        }
    }

    /// The variables that the workload identity webhook sets.
    #[cfg(any(feature = "kms", feature = "cli"))]
    pub(crate) fn workload_identity(&self) -> lanyard_credential::FederatedTokenSettings {
        let mut settings = lanyard_credential::FederatedTokenSettings::default();
        settings.client_id.clone_from(&self.azure_client_id);
        settings.tenant_id.clone_from(&self.azure_tenant_id);
        settings.token_file.clone_from(&self.azure_federated_token_file);
        settings.authority_host.clone_from(&self.azure_authority_host);
        settings
    }

    /// Reads a variable that this type does not keep: a secret, one whose name the user gave, or one that
    /// describes the terminal (`COLUMNS`, `NO_COLOR`, `TERM`).
    pub(crate) fn read_variable(name: &str) -> Option<OsString> {
        std::env::var_os(name)
    }

    /// Reads the environment of the process. Empty values count as unset.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
    pub(crate) fn load() -> Self {
        let text = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let either = |upper: &str, lower: &str| text(upper).or_else(|| text(lower));
        Self {
            https_proxy: either("HTTPS_PROXY", "https_proxy"),
            no_proxy: either("NO_PROXY", "no_proxy"),
            runtime_directory: text("XDG_RUNTIME_DIR").map(PathBuf::from),
            local_azure_control: text("LANYARD_AZURE_CONTROL"),
            ssl_cert_file: text("SSL_CERT_FILE").map(PathBuf::from),
            kubernetes_host: text("KUBERNETES_SERVICE_HOST"),
            kubernetes_port: text("KUBERNETES_SERVICE_PORT"),
            kubeconfigs: kubeconfig_files(),
            managed_identity_host: text("AZURE_POD_IDENTITY_AUTHORITY_HOST"),
            azure_client_id: text("AZURE_CLIENT_ID"),
            azure_tenant_id: text("AZURE_TENANT_ID"),
            azure_federated_token_file: text("AZURE_FEDERATED_TOKEN_FILE").map(PathBuf::from),
            azure_authority_host: text("AZURE_AUTHORITY_HOST"),
            azure_client_certificate_path: text("AZURE_CLIENT_CERTIFICATE_PATH").map(PathBuf::from),
            azure_subscription_id: text("AZURE_SUBSCRIPTION_ID"),
            journals: text("LANYARD_STATE"),
            state_directory: text("XDG_STATE_HOME")
                .map(PathBuf::from)
                .or_else(|| std::env::home_dir().map(|home| home.join(".local").join("state"))),
            #[cfg(feature = "crash-points")]
            crash_at: text("LANYARD_CRASH_AT"),
            #[cfg(feature = "crash-points")]
            mount_in_place: text("LANYARD_MOUNT_IN_PLACE").is_some(),
            #[cfg(feature = "crash-points")]
            clock_ahead: text("LANYARD_CLOCK_AHEAD"),
            #[cfg(feature = "sanity")]
            test_controller: text("LANYARD_TEST_CONTROLLER").is_some(),
        }
    }
}

/// The kubeconfig files that `kubectl` would read.
fn kubeconfig_files() -> Vec<PathBuf> {
    match std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty()) {
        Some(list) => std::env::split_paths(&list).filter(|path| *path != PathBuf::new()).collect(),
        None => {
            std::env::home_dir().map(|home| home.join(".kube").join("config")).into_iter().collect()
        }
    }
}
