//! The services of the local Azure.

use serde::{Deserialize, Serialize};

/// A service of the local Azure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AzureService {
    /// The token service.
    Entra,
    /// The instance metadata service of virtual machines.
    Imds,
    /// The token endpoint of App Service.
    #[serde(rename = "app-service")]
    AppService,
    /// Azure Resource Manager.
    Arm,
    /// The data plane of vaults.
    KeyVault,
    /// Microsoft Graph.
    Graph,
    /// The Blob service of storage accounts.
    Blob,
    /// The static websites of storage accounts.
    StaticWebsite,
    /// The Data Lake Storage endpoint of storage accounts.
    DataLakeStorage,
    /// The Queue service of storage accounts.
    QueueStorage,
    /// The Table service of storage accounts.
    TableStorage,
    /// The File service of storage accounts.
    FileStorage,
    /// The data plane of managed identities, which issues their credentials.
    ManagedIdentity,
    /// The token issuers of managed clusters (AKS).
    OidcIssuer,
    /// The emulator's own control API.
    Control,
}

impl AzureService {
    /// Every service.
    pub const ALL: [Self; 15] = [
        Self::Entra,
        Self::Imds,
        Self::AppService,
        Self::Arm,
        Self::KeyVault,
        Self::Graph,
        Self::Blob,
        Self::StaticWebsite,
        Self::DataLakeStorage,
        Self::QueueStorage,
        Self::TableStorage,
        Self::FileStorage,
        Self::ManagedIdentity,
        Self::OidcIssuer,
        Self::Control,
    ];

    /// The name in the request log and in listings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Entra => "entra",
            Self::Imds => "imds",
            Self::AppService => "app-service",
            Self::Arm => "arm",
            Self::KeyVault => "key-vault",
            Self::Graph => "graph",
            Self::Blob => "blob",
            Self::StaticWebsite => "static-website",
            Self::DataLakeStorage => "data-lake-storage",
            Self::QueueStorage => "queue-storage",
            Self::TableStorage => "table-storage",
            Self::FileStorage => "file-storage",
            Self::ManagedIdentity => "managed-identity",
            Self::OidcIssuer => "oidc-issuer",
            Self::Control => "control",
        }
    }
}
