//! Maps host names to services.

use lanyard_vocabulary::Cloud;

use crate::identity_binding;
use crate::operations::AzureService;

/// The service and the cloud of a host name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServiceEndpoint {
    pub(crate) service: AzureService,
    pub(crate) cloud: Cloud,
}

/// The host names of a cloud's services beyond [`lanyard_vocabulary::cloud::CloudEndpoints`].
struct CloudServiceHosts {
    cloud: Cloud,
    /// Microsoft Graph, then its retired predecessors.
    graph_hosts: &'static [&'static str],
    /// The suffix of storage accounts.
    storage_suffix: &'static str,
}

const CLOUD_SERVICE_HOSTS: &[CloudServiceHosts] = &[
    CloudServiceHosts {
        cloud: Cloud::Public,
        graph_hosts: &["graph.microsoft.com", "graph.windows.net"],
        storage_suffix: "core.windows.net",
    },
    CloudServiceHosts {
        cloud: Cloud::UsGovernment,
        graph_hosts: &["graph.microsoft.us"],
        storage_suffix: "core.usgovcloudapi.net",
    },
    CloudServiceHosts {
        cloud: Cloud::China,
        graph_hosts: &["microsoftgraph.chinacloudapi.cn"],
        storage_suffix: "core.chinacloudapi.cn",
    },
    CloudServiceHosts {
        cloud: Cloud::German,
        graph_hosts: &["graph.microsoft.de"],
        storage_suffix: "core.cloudapi.de",
    },
    CloudServiceHosts {
        cloud: Cloud::Bleu,
        graph_hosts: &["graph.svc.sovcloud.fr"],
        storage_suffix: "core.sovcloud-api.fr",
    },
];

/// The suffix of regional token services.
const REGIONAL_LOGIN: &str = "login.microsoft.com";

/// Whether `host` is a subdomain of `suffix`, at any depth.
fn is_subdomain_of(host: &str, suffix: &str) -> bool {
    host.strip_suffix(suffix).is_some_and(|head| head.len() > 1 && head.ends_with('.'))
}

/// The endpoint of a lower-case host name; `None` for a name that is not Azure's.
pub(crate) fn endpoint_of_host(host: &str) -> Option<ServiceEndpoint> {
    if is_subdomain_of(host, REGIONAL_LOGIN) {
        return Some(ServiceEndpoint { service: AzureService::Entra, cloud: Cloud::Public });
    }
    let known = Cloud::ALL.into_iter().find_map(|cloud| {
        let endpoints = cloud.endpoints()?;
        let service =
            if host == endpoints.authority_host || endpoints.authority_aliases.contains(&host) {
                AzureService::Entra
            } else if host == endpoints.arm_host
                || endpoints.arm_audience.strip_prefix("https://") == Some(host)
            {
                AzureService::Arm
            } else if is_subdomain_of(host, endpoints.vault_suffix)
                || is_subdomain_of(host, endpoints.managed_hsm_suffix)
            {
                AzureService::KeyVault
            } else {
                return None;
            };
        Some(ServiceEndpoint { service, cloud })
    });
    known.or_else(|| {
        CLOUD_SERVICE_HOSTS.iter().find_map(|others| {
            let service = if others.graph_hosts.contains(&host) {
                AzureService::Graph
            } else if is_subdomain_of(host, others.storage_suffix) {
                AzureService::Blob
            } else {
                return None;
            };
            Some(ServiceEndpoint { service, cloud: others.cloud })
        })
    })
}

/// Whether a host is Microsoft Graph in a cloud.
pub(crate) fn is_graph(cloud: Cloud, host: &str) -> bool {
    CLOUD_SERVICE_HOSTS
        .iter()
        .any(|others| others.cloud == cloud && others.graph_hosts.contains(&host))
}

/// Whether a host is the blob endpoint of a storage account in a cloud.
pub(crate) fn is_storage_account(cloud: Cloud, host: &str) -> bool {
    CLOUD_SERVICE_HOSTS.iter().any(|others| {
        others.cloud == cloud
            && host
                .strip_suffix(others.storage_suffix)
                .and_then(|head| head.strip_suffix(".blob."))
                .is_some_and(|account| !account.is_empty() && !account.contains('.'))
    })
}

/// The host of Microsoft Graph in a cloud.
pub(crate) fn graph_host_of_cloud(cloud: Cloud) -> &'static str {
    let others = CLOUD_SERVICE_HOSTS.iter().find(|others| others.cloud == cloud);
    others.and_then(|others| others.graph_hosts.first()).copied().unwrap_or("graph.microsoft.com")
}

/// The global token services of a regional one such as `westeurope.login.microsoft.com`; empty for other
/// hosts.
pub(crate) fn global_hosts_of_regional(host: &str) -> &'static [&'static str] {
    if is_subdomain_of(host, REGIONAL_LOGIN) {
        &["login.microsoftonline.com", REGIONAL_LOGIN]
    } else {
        &[]
    }
}

/// The suffixes that the local CA may sign, without a leading dot.
pub(crate) fn signable_suffixes() -> Vec<&'static str> {
    let mut all = vec![REGIONAL_LOGIN, identity_binding::SUFFIX];
    for endpoints in Cloud::ALL.into_iter().filter_map(Cloud::endpoints) {
        all.push(endpoints.authority_host);
        all.extend(endpoints.authority_aliases);
        all.extend([
            endpoints.arm_host,
            endpoints.arm_audience.trim_start_matches("https://"),
            endpoints.vault_suffix,
            endpoints.managed_hsm_suffix,
        ]);
    }
    for others in CLOUD_SERVICE_HOSTS {
        all.extend(others.graph_hosts);
        all.push(others.storage_suffix);
    }
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service_of_host(host: &str) -> Option<AzureService> {
        endpoint_of_host(host).map(|location| location.service)
    }

    #[test]
    fn every_cloud_has_entra_arm_and_key_vault_endpoints() {
        for cloud in Cloud::ALL {
            let Some(endpoints) = cloud.endpoints() else { continue };
            let expect = |host: String, service| {
                assert_eq!(
                    endpoint_of_host(&host),
                    Some(ServiceEndpoint { service, cloud }),
                    "{host}"
                );
            };
            expect(endpoints.authority_host.to_owned(), AzureService::Entra);
            for alias in endpoints.authority_aliases {
                expect((*alias).to_owned(), AzureService::Entra);
            }
            expect(endpoints.arm_host.to_owned(), AzureService::Arm);
            expect(format!("kv.{}", endpoints.vault_suffix), AzureService::KeyVault);
        }
    }

    #[test]
    fn lookalike_names_are_not_azure_hosts() {
        for host in [
            "",
            "example.com",
            "vault.azure.net",
            ".vault.azure.net",
            "kvvault.azure.net",
            "kv.vault.azure.net.example.com",
            "login.microsoftonline.com.example.com",
            "evil-login.microsoftonline.com",
            "blob.core.windows.net.evil",
            "azure.net",
        ] {
            assert_eq!(service_of_host(host), None, "{host}");
        }
        assert_eq!(service_of_host("westus2.login.microsoft.com"), Some(AzureService::Entra));
        assert_eq!(service_of_host("acct.blob.core.windows.net"), Some(AzureService::Blob));
        assert_eq!(service_of_host("graph.microsoft.com"), Some(AzureService::Graph));
    }

    #[test]
    fn signable_suffixes_cover_azure_names_only() {
        let suffixes = signable_suffixes();
        for host in ["kv.vault.azure.cn", "management.azure.com", "graph.microsoft.us"] {
            assert!(
                suffixes.iter().any(|suffix| host == *suffix || is_subdomain_of(host, suffix)),
                "{host}"
            );
        }
        assert!(suffixes.iter().all(|suffix| suffix.contains('.') && !suffix.starts_with('.')));
    }
}
