//! The names of the conformance suites, which the conformance driver and `cargo xtask conformance` share.

use clap::ValueEnum;

/// A suite, named after its client or after the tested component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SuiteName {
    /// Azure SDK for Go; msi-dataplane with files that the node plugin mounted
    Go,
    /// Azure SDK for Python, and Microsoft Graph
    Python,
    /// Azure SDK for Rust
    Rust,
    /// azure-identity and azure-security-keyvault-secrets for Java
    Java,
    /// `@azure/identity` and `@azure/keyvault-secrets`
    Js,
    /// Requests of lanyard compared with those of azidentity and azsecrets
    Requests,
    /// kube-apiserver with the node plugin's classes, pod statuses, events and Secrets
    Kubernetes,
    /// kube-apiserver with the operator's CRDs, and the operator
    Operator,
    /// The chart of the node plugin, with Helm and a Kubernetes API
    Chart,
    /// csi-sanity with lanyard's CSI driver
    Csi,
    /// Upstream's drivers with lanyard's provider, and lanyard's driver with upstream's providers
    Interop,
    /// The chart on a real node, with pods of a real kubelet
    Node,
    /// kube-apiserver and upstream's KMS plugin with lanyard's KMS plugin
    Kms,
    /// The three charts on a real node, as the tutorial installs them: a HostedCluster and its nine identities
    HostedCluster,
    /// Azure CLI
    Azcli,
    /// lanyard's infrastructure commands, with their results read back by the Azure CLI
    Infra,
    /// Azure SDKs and the Azure CLI in the drills of the local Azure
    Drills,
    /// The web page of the local Azure, in a headless Chromium
    Page,
}

impl SuiteName {
    /// The name on command lines, such as `hosted-cluster`.
    pub fn name(self) -> String {
        self.to_possible_value().map(|it| it.get_name().to_owned()).unwrap_or_default()
    }
}
