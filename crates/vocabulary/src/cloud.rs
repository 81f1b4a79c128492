//! The Azure clouds and their endpoints.
//!
//! Names are those of the HostedCluster API. Endpoints follow the Azure SDK constants and, for the clouds
//! without constants, the tables of HyperShift's operators.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A cloud, by its name in `spec.platform.azure.cloud`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Cloud {
    /// Azure public.
    #[default]
    #[serde(rename = "AzurePublicCloud")]
    Public,
    /// Azure US Government.
    #[serde(rename = "AzureUSGovernmentCloud")]
    UsGovernment,
    /// Azure China, operated by 21Vianet.
    #[serde(rename = "AzureChinaCloud")]
    China,
    /// Azure Germany (closed in 2021, still in the API).
    #[serde(rename = "AzureGermanCloud")]
    German,
    /// Bleu, France.
    #[serde(rename = "AzureBleuCloud")]
    Bleu,
    /// Azure Stack: its endpoints depend on the installation and come from a file.
    #[serde(rename = "AzureStackCloud")]
    Stack,
}

/// The endpoints of a cloud. Hosts have no scheme; audiences are complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloudEndpoints {
    /// Host of the Entra token service.
    pub authority_host: &'static str,
    /// Further hosts that serve the same token service.
    pub authority_aliases: &'static [&'static str],
    /// Host of Azure Resource Manager.
    pub arm_host: &'static str,
    /// Audience of Azure Resource Manager, without a trailing slash.
    pub arm_audience: &'static str,
    /// DNS suffix of vaults, without a leading dot.
    pub vault_suffix: &'static str,
    /// DNS suffix of managed HSMs, without a leading dot.
    pub managed_hsm_suffix: &'static str,
    /// Host of Microsoft Graph, which is also its audience.
    pub graph_host: &'static str,
    /// DNS suffix of storage, without a leading dot and without the service: blobs are at
    /// `<account>.blob.<suffix>`.
    pub storage_suffix: &'static str,
    /// DNS suffix of container registries, without a leading dot; the German cloud never had registries.
    pub registry_suffix: Option<&'static str>,
}

impl CloudEndpoints {
    /// The endpoints of the cloud whose token service has this host, which may be an alias.
    pub fn of_authority_host(host: &str) -> Option<&'static Self> {
        let mut known = Cloud::ALL.into_iter().filter_map(Cloud::endpoints);
        known.find(|it| it.authority_host == host || it.authority_aliases.contains(&host))
    }

    /// The audience of the vaults' data plane, without a trailing slash.
    pub fn vault_audience(&self) -> String {
        format!("https://{}", self.vault_suffix)
    }

    /// The base URL of the token service, with a trailing slash, as in credential documents.
    pub fn authority_url(&self) -> String {
        format!("https://{}/", self.authority_host)
    }

    /// The base URL of Microsoft Graph, without a trailing slash, which is also its audience.
    pub fn graph_url(&self) -> String {
        format!("https://{}", self.graph_host)
    }

    /// The DNS suffix of blobs, without a leading dot: accounts are its first label.
    pub fn blob_suffix(&self) -> String {
        format!("blob.{}", self.storage_suffix)
    }

    /// The base URL of Azure Resource Manager, without a trailing slash.
    pub fn arm_url(&self) -> String {
        format!("https://{}", self.arm_host)
    }
}

/// The endpoints of the public cloud.
pub const PUBLIC: CloudEndpoints = CloudEndpoints {
    authority_host: "login.microsoftonline.com",
    authority_aliases: &["login.windows.net", "login.microsoft.com", "sts.windows.net"],
    arm_host: "management.azure.com",
    arm_audience: "https://management.core.windows.net",
    vault_suffix: "vault.azure.net",
    managed_hsm_suffix: "managedhsm.azure.net",
    graph_host: "graph.microsoft.com",
    storage_suffix: "core.windows.net",
    registry_suffix: Some("azurecr.io"),
};

const US_GOVERNMENT: CloudEndpoints = CloudEndpoints {
    authority_host: "login.microsoftonline.us",
    authority_aliases: &["login.usgovcloudapi.net", "login-us.microsoftonline.com"],
    arm_host: "management.usgovcloudapi.net",
    arm_audience: "https://management.core.usgovcloudapi.net",
    vault_suffix: "vault.usgovcloudapi.net",
    managed_hsm_suffix: "managedhsm.usgovcloudapi.net",
    graph_host: "graph.microsoft.us",
    storage_suffix: "core.usgovcloudapi.net",
    registry_suffix: Some("azurecr.us"),
};

const CHINA: CloudEndpoints = CloudEndpoints {
    authority_host: "login.chinacloudapi.cn",
    authority_aliases: &["login.partner.microsoftonline.cn"],
    arm_host: "management.chinacloudapi.cn",
    arm_audience: "https://management.core.chinacloudapi.cn",
    vault_suffix: "vault.azure.cn",
    managed_hsm_suffix: "managedhsm.azure.cn",
    graph_host: "microsoftgraph.chinacloudapi.cn",
    storage_suffix: "core.chinacloudapi.cn",
    registry_suffix: Some("azurecr.cn"),
};

const GERMAN: CloudEndpoints = CloudEndpoints {
    authority_host: "login.microsoftonline.de",
    authority_aliases: &[],
    arm_host: "management.microsoftazure.de",
    arm_audience: "https://management.core.cloudapi.de",
    vault_suffix: "vault.microsoftazure.de",
    managed_hsm_suffix: "managedhsm.microsoftazure.de",
    graph_host: "graph.microsoft.de",
    storage_suffix: "core.cloudapi.de",
    registry_suffix: None,
};

const BLEU: CloudEndpoints = CloudEndpoints {
    authority_host: "login.sovcloud-identity.fr",
    authority_aliases: &[],
    arm_host: "management.sovcloud-api.fr",
    arm_audience: "https://management.sovcloud-api.fr",
    vault_suffix: "vault.sovcloud-api.fr",
    managed_hsm_suffix: "managedhsm.sovcloud-api.fr",
    graph_host: "graph.svc.sovcloud.fr",
    storage_suffix: "core.sovcloud-api.fr",
    registry_suffix: Some("azurecr.sovcloud-azure.fr"),
};

impl Cloud {
    /// Every cloud of the API.
    pub const ALL: [Self; 6] =
        [Self::Public, Self::UsGovernment, Self::China, Self::German, Self::Bleu, Self::Stack];

    /// The name in the HostedCluster API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Public => "AzurePublicCloud",
            Self::UsGovernment => "AzureUSGovernmentCloud",
            Self::China => "AzureChinaCloud",
            Self::German => "AzureGermanCloud",
            Self::Bleu => "AzureBleuCloud",
            Self::Stack => "AzureStackCloud",
        }
    }

    /// The endpoints; `None` for Azure Stack.
    pub const fn endpoints(self) -> Option<&'static CloudEndpoints> {
        match self {
            Self::Public => Some(&PUBLIC),
            Self::UsGovernment => Some(&US_GOVERNMENT),
            Self::China => Some(&CHINA),
            Self::German => Some(&GERMAN),
            Self::Bleu => Some(&BLEU),
            Self::Stack => None,
        }
    }

    /// `cloudName` of a SecretProviderClass for any Key Vault provider; `None` for the public cloud, where
    /// it is omitted, and for clouds that the upstream provider does not know: it refuses their names.
    ///
    /// Source: the table of `EnvironmentFromName` in go-autorest, which the upstream provider asks.
    pub const fn provider_name(self) -> Option<&'static str> {
        match self {
            Self::Public | Self::Bleu => None,
            Self::UsGovernment | Self::China | Self::German | Self::Stack => Some(self.name()),
        }
    }

    /// Parses `cloudName` of a SecretProviderClass: any case, with the provider's short names, and empty for
    /// the public cloud.
    pub fn parse_provider_name(text: &str) -> Option<Self> {
        const SHORT: [(&str, Cloud); 3] = [
            ("", Cloud::Public),
            ("AzureCloud", Cloud::Public),
            ("AzureUSGovernment", Cloud::UsGovernment),
        ];
        let long = Self::ALL.into_iter().map(|cloud| (cloud.name(), cloud));
        SHORT
            .into_iter()
            .chain(long)
            .find_map(|(name, cloud)| name.eq_ignore_ascii_case(text).then_some(cloud))
    }

    /// `userAssignedIdentityCredentialsCloudType` of an `AzureClusterIdentity`; Cluster API Provider Azure
    /// supports only three clouds.
    pub const fn cluster_identity_type(self) -> Option<&'static str> {
        match self {
            Self::Public => Some("public"),
            Self::UsGovernment => Some("usgovernment"),
            Self::China => Some("china"),
            Self::German | Self::Bleu | Self::Stack => None,
        }
    }
}

crate::display_text!(Cloud, name());

/// The text is not the name of a cloud in the API.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a cloud; known: `AzurePublicCloud`, `AzureUSGovernmentCloud`, `AzureChinaCloud`, `AzureGermanCloud`, `AzureBleuCloud`, `AzureStackCloud`"
)]
pub struct ParseCloudError(pub String);

impl FromStr for Cloud {
    type Err = ParseCloudError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|cloud| cloud.name() == text)
            .ok_or_else(|| ParseCloudError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_provider_understands_short_names_in_any_case() {
        let cases = [
            ("", Some(Cloud::Public)),
            ("azurecloud", Some(Cloud::Public)),
            ("AZUREPUBLICCLOUD", Some(Cloud::Public)),
            ("AzureUSGovernment", Some(Cloud::UsGovernment)),
            ("AzureUSGovernmentCloud", Some(Cloud::UsGovernment)),
            ("azurestackcloud", Some(Cloud::Stack)),
            ("Azure", None),
        ];
        for (text, expected) in cases {
            assert_eq!(Cloud::parse_provider_name(text), expected, "{text:?}");
        }
    }

    #[test]
    fn provider_names_are_those_that_the_upstream_provider_knows() {
        let names: Vec<_> = Cloud::ALL.into_iter().filter_map(Cloud::provider_name).collect();
        let known =
            ["AzureUSGovernmentCloud", "AzureChinaCloud", "AzureGermanCloud", "AzureStackCloud"];
        assert_eq!(names, known);
        for name in names {
            assert_eq!(Cloud::parse_provider_name(name).unwrap().name(), name);
        }
    }

    #[test]
    fn endpoints_are_host_names_and_unique_per_cloud() {
        let mut observed = std::collections::BTreeSet::new();
        for endpoints in Cloud::ALL.into_iter().filter_map(Cloud::endpoints) {
            let names = [
                endpoints.authority_host,
                endpoints.arm_host,
                endpoints.vault_suffix,
                endpoints.managed_hsm_suffix,
                endpoints.graph_host,
                endpoints.storage_suffix,
            ];
            let all = names.into_iter().chain(endpoints.authority_aliases.iter().copied());
            for name in all.chain(endpoints.registry_suffix) {
                let bare = !name.starts_with('.') && !name.contains(['/', ':']);
                assert!(bare && name.contains('.'), "{name}");
                assert!(observed.insert(name), "{name} is there twice");
            }
        }
    }

    #[test]
    fn cloud_is_found_by_each_host_of_its_token_service() {
        let name = |host| CloudEndpoints::of_authority_host(host).map(|it| it.arm_host);
        assert_eq!(name("login.microsoftonline.com"), Some("management.azure.com"));
        assert_eq!(name("sts.windows.net"), Some("management.azure.com"));
        assert_eq!(name("login.usgovcloudapi.net"), Some("management.usgovcloudapi.net"));
        assert_eq!(name("login.example"), None);
    }

    #[test]
    fn urls_use_the_hosts_of_the_cloud() {
        let endpoints = Cloud::UsGovernment.endpoints().unwrap();
        assert_eq!(endpoints.graph_url(), "https://graph.microsoft.us");
        assert_eq!(endpoints.blob_suffix(), "blob.core.usgovcloudapi.net");
    }

    #[test]
    fn cloud_names_round_trip_and_only_stack_lacks_endpoints() {
        for cloud in Cloud::ALL {
            assert_eq!(cloud.name().parse(), Ok(cloud));
            assert_eq!(cloud.endpoints().is_none(), cloud == Cloud::Stack);
        }
    }
}
