//! Which service answers for a host name.

use lanyard_vocabulary::Cloud;

use crate::binding;
use crate::operations::Service;

/// The service and the cloud that a host name belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Site {
    /// The service.
    pub(crate) service: Service,
    /// The cloud.
    pub(crate) cloud: Cloud,
}

/// The names of a cloud beyond [`lanyard_vocabulary::cloud::Endpoints`]: services that answer 501
/// honestly, so that a client learns what is missing instead of what is unreachable.
struct Others {
    cloud: Cloud,
    graph: &'static [&'static str],
    storage_suffix: &'static str,
}

const OTHERS: &[Others] = &[
    Others {
        cloud: Cloud::Public,
        graph: &["graph.microsoft.com", "graph.windows.net"],
        storage_suffix: "core.windows.net",
    },
    Others {
        cloud: Cloud::UsGovernment,
        graph: &["graph.microsoft.us"],
        storage_suffix: "core.usgovcloudapi.net",
    },
    Others {
        cloud: Cloud::China,
        graph: &["microsoftgraph.chinacloudapi.cn"],
        storage_suffix: "core.chinacloudapi.cn",
    },
    Others {
        cloud: Cloud::German,
        graph: &["graph.microsoft.de"],
        storage_suffix: "core.cloudapi.de",
    },
    Others {
        cloud: Cloud::Bleu,
        graph: &["graph.svc.sovcloud.fr"],
        storage_suffix: "core.sovcloud-api.fr",
    },
];

/// The suffix of regional token services.
const REGIONAL_LOGIN: &str = "login.microsoft.com";

/// Whether `host` is a name directly or deeper below `suffix`.
fn below(host: &str, suffix: &str) -> bool {
    host.strip_suffix(suffix).is_some_and(|head| head.len() > 1 && head.ends_with('.'))
}

/// The site of a host name in lower case, or nothing for a name that is not Azure's.
pub(crate) fn site(host: &str) -> Option<Site> {
    if below(host, REGIONAL_LOGIN) {
        return Some(Site { service: Service::Entra, cloud: Cloud::Public });
    }
    let known = Cloud::ALL.into_iter().find_map(|cloud| {
        let endpoints = cloud.endpoints()?;
        let service = if host == endpoints.authority_host
            || endpoints.authority_aliases.contains(&host)
        {
            Service::Entra
        } else if host == endpoints.arm_host
            || endpoints.arm_audience.strip_prefix("https://") == Some(host)
        {
            Service::Arm
        } else if below(host, endpoints.vault_suffix) || below(host, endpoints.managed_hsm_suffix) {
            Service::KeyVault
        } else {
            return None;
        };
        Some(Site { service, cloud })
    });
    known.or_else(|| {
        OTHERS.iter().find_map(|others| {
            let service = if others.graph.contains(&host) {
                Service::Graph
            } else if below(host, others.storage_suffix) {
                Service::Blob
            } else {
                return None;
            };
            Some(Site { service, cloud: others.cloud })
        })
    })
}

/// Whether a host is Microsoft Graph of a cloud.
pub(crate) fn is_graph(cloud: Cloud, host: &str) -> bool {
    OTHERS.iter().any(|others| others.cloud == cloud && others.graph.contains(&host))
}

/// Whether a host is the blob endpoint of a storage account of a cloud.
pub(crate) fn is_storage_account(cloud: Cloud, host: &str) -> bool {
    OTHERS.iter().any(|others| {
        others.cloud == cloud
            && host
                .strip_suffix(others.storage_suffix)
                .and_then(|head| head.strip_suffix(".blob."))
                .is_some_and(|account| !account.is_empty() && !account.contains('.'))
    })
}

/// The host of Microsoft Graph of a cloud.
pub(crate) fn graph(cloud: Cloud) -> &'static str {
    let others = OTHERS.iter().find(|others| others.cloud == cloud);
    others.and_then(|others| others.graph.first()).copied().unwrap_or("graph.microsoft.com")
}

/// The global token services that a regional one, such as `westeurope.login.microsoft.com`,
/// stands for; none for a host that is not regional.
pub(crate) fn global_names_of_regional(host: &str) -> &'static [&'static str] {
    if below(host, REGIONAL_LOGIN) { &["login.microsoftonline.com", REGIONAL_LOGIN] } else { &[] }
}

/// The suffixes that the local CA may sign for, without a leading dot.
pub(crate) fn suffixes() -> Vec<&'static str> {
    let mut all = vec![REGIONAL_LOGIN, binding::SUFFIX];
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
    for others in OTHERS {
        all.extend(others.graph);
        all.push(others.storage_suffix);
    }
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(host: &str) -> Option<Service> {
        site(host).map(|site| site.service)
    }

    #[test]
    fn every_cloud_has_its_token_service_resource_manager_and_vaults() {
        for cloud in Cloud::ALL {
            let Some(endpoints) = cloud.endpoints() else { continue };
            let expect = |host: String, service| {
                assert_eq!(site(&host), Some(Site { service, cloud }), "{host}");
            };
            expect(endpoints.authority_host.to_owned(), Service::Entra);
            for alias in endpoints.authority_aliases {
                expect((*alias).to_owned(), Service::Entra);
            }
            expect(endpoints.arm_host.to_owned(), Service::Arm);
            expect(format!("kv.{}", endpoints.vault_suffix), Service::KeyVault);
        }
    }

    #[test]
    fn names_that_only_look_like_azure_are_nobody() {
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
            assert_eq!(service(host), None, "{host}");
        }
        assert_eq!(service("westus2.login.microsoft.com"), Some(Service::Entra));
        assert_eq!(service("acct.blob.core.windows.net"), Some(Service::Blob));
        assert_eq!(service("graph.microsoft.com"), Some(Service::Graph));
    }

    #[test]
    fn the_authority_may_sign_for_every_site_and_for_names_of_azure_only() {
        let suffixes = suffixes();
        for host in ["kv.vault.azure.cn", "management.azure.com", "graph.microsoft.us"] {
            assert!(suffixes.iter().any(|suffix| host == *suffix || below(host, suffix)), "{host}");
        }
        assert!(suffixes.iter().all(|suffix| suffix.contains('.') && !suffix.starts_with('.')));
    }
}
