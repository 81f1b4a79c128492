use super::emulated_cloud::is_subdomain_of;
use super::*;

fn azure() -> AzureClouds {
    AzureClouds::new(None, 7750)
}

/// The clouds with a custom one at `azure.test`.
fn with_custom_cloud(domain: &str) -> AzureClouds {
    AzureClouds::new(Some(&domain.parse().unwrap()), 7750)
}

fn service_of_host(clouds: &AzureClouds, host: &str) -> Option<(AzureService, Cloud)> {
    clouds.endpoint_of_host(host).map(|endpoint| (endpoint.service, endpoint.cloud.name))
}

#[test]
fn every_cloud_has_entra_arm_graph_and_key_vault_endpoints() {
    for cloud in Cloud::ALL {
        let Some(endpoints) = cloud.endpoints() else { continue };
        let expect = |host: &str, service| {
            assert_eq!(service_of_host(&azure(), host), Some((service, cloud)), "{host}");
        };
        expect(endpoints.authority_host, AzureService::Entra);
        for alias in endpoints.authority_aliases {
            expect(alias, AzureService::Entra);
        }
        expect(endpoints.arm_host, AzureService::Arm);
        expect(endpoints.graph_host, AzureService::Graph);
        expect(&format!("kv.{}", endpoints.vault_suffix), AzureService::KeyVault);
        expect(&format!("hsm.{}", endpoints.managed_hsm_suffix), AzureService::KeyVault);
        expect(&format!("account.{}", endpoints.blob_suffix()), AzureService::Blob);
    }
}

#[test]
fn hosts_of_the_public_cloud_have_their_services() {
    let cases = [
        ("westus2.login.microsoft.com", AzureService::Entra),
        ("acct.blob.core.windows.net", AzureService::Blob),
        ("acct.z13.web.core.windows.net", AzureService::StaticWebsite),
        ("acct.dfs.core.windows.net", AzureService::DataLakeStorage),
        ("acct.queue.core.windows.net", AzureService::QueueStorage),
        ("acct.table.core.windows.net", AzureService::TableStorage),
        ("acct.file.core.windows.net", AzureService::FileStorage),
        ("control-eastus.identity.azure.net", AzureService::ManagedIdentity),
        ("westeurope.oic.prod-aks.azure.com", AzureService::OidcIssuer),
        ("graph.microsoft.com", AzureService::Graph),
        ("graph.windows.net", AzureService::Graph),
    ];
    for (host, service) in cases {
        assert_eq!(service_of_host(&azure(), host), Some((service, Cloud::Public)), "{host}");
    }
}

#[test]
fn hosts_of_a_custom_cloud_have_their_services() {
    let clouds = with_custom_cloud("azure.test");
    let cases = [
        ("login.azure.test", AzureService::Entra),
        ("management.azure.test", AzureService::Arm),
        ("graph.azure.test", AzureService::Graph),
        ("kv.vault.azure.test", AzureService::KeyVault),
        ("hsm.managedhsm.azure.test", AzureService::KeyVault),
        ("acct.blob.core.azure.test", AzureService::Blob),
        ("acct.z13.web.core.azure.test", AzureService::StaticWebsite),
        ("acct.dfs.core.azure.test", AzureService::DataLakeStorage),
        ("control-eastus.identity.azure.test", AzureService::ManagedIdentity),
    ];
    for (host, service) in cases {
        assert_eq!(service_of_host(&clouds, host), Some((service, Cloud::Stack)), "{host}");
        assert_eq!(service_of_host(&azure(), host), None, "{host} without the cloud");
    }
    let public = service_of_host(&clouds, "management.azure.com");
    assert_eq!(public, Some((AzureService::Arm, Cloud::Public)));
}

#[test]
fn lookalike_names_are_not_azure_hosts() {
    let clouds = with_custom_cloud("azure.test");
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
        "azure.test",
        "other.azure.test",
        "vault.azure.test",
        "kvvault.azure.test",
        "kv.vault.azure.test.example.com",
        "evil-login.azure.test",
        "a.login.azure.test",
        "management.evilazure.test",
        "acct.blob.azure.test",
        "blob.core.azure.test",
        "identity.azure.test",
    ] {
        assert_eq!(service_of_host(&clouds, host), None, "{host}");
    }
}

#[test]
fn blob_names_keep_their_slashes() {
    let clouds = with_custom_cloud("azure.test");
    for host in
        ["acct.blob.core.windows.net", "acct.z13.web.core.windows.net", "acct.blob.core.azure.test"]
    {
        assert_eq!(clouds.request_path(host, "/c/a//b/"), "/c/a//b/");
    }
    for host in ["management.azure.com", "management.azure.test"] {
        assert_eq!(clouds.request_path(host, "//subscriptions/"), "/subscriptions");
    }
}

#[test]
fn signable_suffixes_cover_the_names_of_the_clouds_only() {
    let suffixes = with_custom_cloud("azure.test").signable_suffixes();
    let is_signable =
        |host: &str| suffixes.iter().any(|suffix| host == suffix || is_subdomain_of(host, suffix));
    for host in [
        "kv.vault.azure.cn",
        "management.azure.com",
        "graph.microsoft.us",
        "management.azure.test",
        "acct.blob.core.azure.test",
    ] {
        assert!(is_signable(host), "{host}");
    }
    assert!(!is_signable("azure.test") && !is_signable("other.azure.test"));
    assert!(suffixes.iter().all(|suffix| suffix.contains('.') && !suffix.starts_with('.')));
}

#[test]
fn urls_of_a_custom_cloud_have_the_port_of_the_listener_or_of_the_domain() {
    for (domain, port) in
        [("azure.test", ":7750"), ("azure.test:8443", ":8443"), ("azure.test:443", "")]
    {
        let clouds = with_custom_cloud(domain);
        let cloud = clouds.custom().unwrap();
        assert_eq!(cloud.arm_url(), format!("https://management.azure.test{port}"));
        assert_eq!(cloud.authority_url(), format!("https://login.azure.test{port}"));
        assert_eq!(cloud.graph_url(), format!("https://graph.azure.test{port}"));
        assert_eq!(cloud.vault_authority_suffix(), format!("vault.azure.test{port}"));
        assert_eq!(cloud.storage_authority_suffix(), format!("core.azure.test{port}"));
        let vault = format!("https://kv.vault.azure.test{port}");
        assert_eq!(clouds.origin("kv.vault.azure.test"), vault);
        let url = clouds.url_with_port("https://kv.vault.azure.test/a/b");
        assert_eq!(url, format!("{vault}/a/b"));
    }
    let clouds = with_custom_cloud("azure.test");
    assert_eq!(clouds.public().arm_url(), "https://management.azure.com");
    for unchanged in ["https://kv.vault.azure.net/", "https://kv.vault.other.test/", "kv"] {
        assert_eq!(clouds.url_with_port(unchanged), unchanged);
    }
}

#[test]
fn audiences_of_a_custom_cloud_resolve_with_and_without_port_and_slash() {
    let clouds = with_custom_cloud("azure.test");
    let custom = clouds.custom().unwrap();
    for (host, service) in [
        ("management.azure.test", AudienceService::Other),
        ("vault.azure.test", AudienceService::Other),
        ("managedhsm.azure.test", AudienceService::Other),
        ("identity.azure.test", AudienceService::Other),
        ("acct.blob.core.azure.test", AudienceService::Other),
        ("graph.azure.test", AudienceService::Graph),
    ] {
        for identifier in [
            format!("https://{host}"),
            format!("https://{host}/"),
            format!("https://{host}:7750"),
            format!("https://{host}:7750/"),
        ] {
            assert_eq!(custom.service_of_audience(&identifier), Some(service), "{identifier}");
            assert_eq!(clouds.public().service_of_audience(&identifier), None, "{identifier}");
        }
        for identifier in [
            format!("https://{host}:443"),
            format!("https://{host}:8443"),
            format!("https://{host}//"),
            format!("http://{host}:7750"),
            format!("https://{host}.example.com:7750"),
        ] {
            assert_eq!(custom.service_of_audience(&identifier), None, "{identifier}");
        }
    }
    assert_eq!(clouds.public().service_of_audience("https://vault.azure.net:443"), None);
    assert_eq!(custom.service_of_audience("https://management.azure.com"), None);
    let storage = custom.service_of_audience("https://storage.azure.com/");
    assert_eq!(storage, Some(AudienceService::Other));
}

#[test]
fn urls_with_another_port_are_not_those_of_the_cloud() {
    let clouds = with_custom_cloud("azure.test");
    let has_endpoint = |url: &str| clouds.endpoint_of_url(&url.parse().unwrap()).is_some();
    for url in ["https://login.azure.test:7750/t", "https://login.microsoftonline.com/t"] {
        assert!(has_endpoint(url), "{url}");
    }
    for url in [
        "https://login.azure.test/t",
        "http://login.azure.test:7750/t",
        "https://login.microsoftonline.com:7750/t",
    ] {
        assert!(!has_endpoint(url), "{url}");
    }
}
