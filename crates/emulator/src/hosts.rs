//! Maps host names to services.

use lanyard_vocabulary::Cloud;

use crate::identity_binding;
use crate::operations::AzureService;
use crate::request::normalize_path;

/// The service and the cloud of a host name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServiceEndpoint {
    pub(crate) service: AzureService,
    pub(crate) cloud: Cloud,
}

/// The host names of Microsoft Graph in a cloud.
struct GraphHosts {
    cloud: Cloud,
    hosts: &'static [&'static str],
}

const GRAPH_HOSTS: &[GraphHosts] = &[
    GraphHosts { cloud: Cloud::Public, hosts: &["graph.microsoft.com", "graph.windows.net"] },
    GraphHosts { cloud: Cloud::UsGovernment, hosts: &["graph.microsoft.us"] },
    GraphHosts { cloud: Cloud::China, hosts: &["microsoftgraph.chinacloudapi.cn"] },
    GraphHosts { cloud: Cloud::German, hosts: &["graph.microsoft.de"] },
    GraphHosts { cloud: Cloud::Bleu, hosts: &["graph.svc.sovcloud.fr"] },
];

/// The suffix of regional token services.
const REGIONAL_LOGIN: &str = "login.microsoft.com";

/// The domain of the data plane of managed identities, whose hosts are `control-{region}` in it.
pub(crate) const MANAGED_IDENTITY_DOMAIN: &str = "identity.azure.net";

/// Whether a host is the data plane of managed identities in a region.
fn is_managed_identity_host(host: &str) -> bool {
    let label = host.strip_suffix(MANAGED_IDENTITY_DOMAIN).and_then(|head| head.strip_suffix('.'));
    let region = label.and_then(|label| label.strip_prefix("control-"));
    region.is_some_and(|region| !region.is_empty() && !region.contains('.'))
}

/// Whether `host` is a subdomain of `suffix`, at any depth.
fn is_subdomain_of(host: &str, suffix: &str) -> bool {
    host.strip_suffix(suffix).is_some_and(|head| head.len() > 1 && head.ends_with('.'))
}

/// The endpoint of a lower-case host name; `None` for a name that is not Azure's.
pub(crate) fn endpoint_of_host(host: &str) -> Option<ServiceEndpoint> {
    if is_subdomain_of(host, REGIONAL_LOGIN) {
        return Some(ServiceEndpoint { service: AzureService::Entra, cloud: Cloud::Public });
    }
    if is_managed_identity_host(host) {
        let service = AzureService::ManagedIdentity;
        return Some(ServiceEndpoint { service, cloud: Cloud::Public });
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
                storage_service(host, endpoints.storage_suffix)?
            };
        Some(ServiceEndpoint { service, cloud })
    });
    known.or_else(|| {
        GRAPH_HOSTS
            .iter()
            .find(|graph| graph.hosts.contains(&host))
            .map(|graph| ServiceEndpoint { service: AzureService::Graph, cloud: graph.cloud })
    })
}

/// The service of a host of storage accounts: `<account>.blob.<suffix>`, or `<account>.<zone>.web.<suffix>`
/// for a static website.
fn storage_service(host: &str, storage_suffix: &str) -> Option<AzureService> {
    let labels = host.strip_suffix(storage_suffix)?.strip_suffix('.')?;
    let (account, service) = labels.rsplit_once('.')?;
    let is_name = |name: &str| !name.is_empty() && !name.contains('.');
    match service {
        "blob" if is_name(account) => Some(AzureService::Blob),
        "dfs" if is_name(account) => Some(AzureService::DataLakeStorage),
        "queue" if is_name(account) => Some(AzureService::QueueStorage),
        "table" if is_name(account) => Some(AzureService::TableStorage),
        "file" if is_name(account) => Some(AzureService::FileStorage),
        "web" => {
            let (account, zone) = account.split_once('.')?;
            (is_name(account) && is_name(zone)).then_some(AzureService::StaticWebsite)
        }
        _ => None,
    }
}

/// The path of a request in the form of [`crate::request::ServiceRequest::path`].
pub(crate) fn request_path(host: &str, path: &str) -> String {
    if is_blob_host(host) { path.to_owned() } else { normalize_path(path) }
}

/// Whether a host serves blobs: their names contain slashes, and their bodies are large.
pub(crate) fn is_blob_host(host: &str) -> bool {
    Cloud::ALL.into_iter().filter_map(Cloud::endpoints).any(|endpoints| {
        let service = storage_service(host, endpoints.storage_suffix);
        matches!(service, Some(AzureService::Blob | AzureService::StaticWebsite))
    })
}

/// Whether a host is Microsoft Graph in a cloud.
pub(crate) fn is_graph(cloud: Cloud, host: &str) -> bool {
    GRAPH_HOSTS.iter().any(|graph| graph.cloud == cloud && graph.hosts.contains(&host))
}

/// Whether a host is the blob endpoint of a storage account in a cloud.
pub(crate) fn is_storage_account(cloud: Cloud, host: &str) -> bool {
    cloud.endpoints().is_some_and(|endpoints| {
        storage_service(host, endpoints.storage_suffix) == Some(AzureService::Blob)
    })
}

/// The host of Microsoft Graph in a cloud.
pub(crate) fn graph_host_of_cloud(cloud: Cloud) -> &'static str {
    let graph = GRAPH_HOSTS.iter().find(|graph| graph.cloud == cloud);
    graph.and_then(|graph| graph.hosts.first()).copied().unwrap_or("graph.microsoft.com")
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
    let mut all = vec![REGIONAL_LOGIN, MANAGED_IDENTITY_DOMAIN, identity_binding::SUFFIX];
    for endpoints in Cloud::ALL.into_iter().filter_map(Cloud::endpoints) {
        all.push(endpoints.authority_host);
        all.extend(endpoints.authority_aliases);
        all.extend([
            endpoints.arm_host,
            endpoints.arm_audience.trim_start_matches("https://"),
            endpoints.vault_suffix,
            endpoints.managed_hsm_suffix,
            endpoints.storage_suffix,
        ]);
    }
    for graph in GRAPH_HOSTS {
        all.extend(graph.hosts);
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
            "blob.core.windows.net",
            ".blob.core.windows.net",
            "a.b.blob.core.windows.net",
            "acct.web.core.windows.net",
            "acct.other.core.windows.net",
            "azure.net",
            "identity.azure.net",
            "eastus.identity.azure.net",
            "control-.identity.azure.net",
            "control-a.b.identity.azure.net",
        ] {
            assert_eq!(service_of_host(host), None, "{host}");
        }
        assert_eq!(service_of_host("westus2.login.microsoft.com"), Some(AzureService::Entra));
        let storage = [
            ("acct.blob.core.windows.net", AzureService::Blob),
            ("acct.blob.core.chinacloudapi.cn", AzureService::Blob),
            ("acct.z13.web.core.windows.net", AzureService::StaticWebsite),
            ("acct.dfs.core.windows.net", AzureService::DataLakeStorage),
            ("acct.queue.core.windows.net", AzureService::QueueStorage),
            ("acct.table.core.windows.net", AzureService::TableStorage),
            ("acct.file.core.windows.net", AzureService::FileStorage),
        ];
        for (host, service) in storage {
            assert_eq!(service_of_host(host), Some(service), "{host}");
        }
        let data_plane = "control-eastus.identity.azure.net";
        assert_eq!(service_of_host(data_plane), Some(AzureService::ManagedIdentity));
        assert_eq!(service_of_host("graph.microsoft.com"), Some(AzureService::Graph));
    }

    #[test]
    fn blob_names_keep_their_slashes() {
        for host in ["acct.blob.core.windows.net", "acct.z13.web.core.windows.net"] {
            assert_eq!(request_path(host, "/c/a//b/"), "/c/a//b/");
        }
        assert_eq!(request_path("management.azure.com", "//subscriptions/"), "/subscriptions");
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
