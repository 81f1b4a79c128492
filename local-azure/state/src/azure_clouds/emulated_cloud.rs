//! A cloud: the host names, URLs and audiences of its services.

use lanyard_vocabulary::cloud::CloudEndpoints;
use lanyard_vocabulary::{Cloud, EntraTenantId, VaultName};

use crate::azure_service::AzureService;
use crate::identity_binding;
use crate::request::{HTTPS_PORT, https_origin};

/// A cloud with the hosts of its services. Hosts are in lower case and have no port.
#[derive(Debug, PartialEq, Eq)]
pub struct EmulatedCloud {
    pub name: Cloud,
    /// The port in the URLs of all services.
    pub(super) port: u16,
    /// The hosts of the Entra token service, the preferred one first.
    authority_hosts: Vec<String>,
    /// The suffix of regional token services.
    regional_authority_suffix: Option<&'static str>,
    /// The host in the issuer of version 1.0 tokens.
    token_issuer_host: &'static str,
    arm_host: String,
    /// The host in the audience of Azure Resource Manager.
    arm_audience_host: String,
    vault_suffix: String,
    managed_hsm_suffix: String,
    /// The hosts of Microsoft Graph, the preferred one first.
    graph_hosts: Vec<String>,
    /// The suffix of storage: blobs are at `<account>.blob.<suffix>`.
    storage_suffix: String,
    /// The domain of the data plane of managed identities, whose hosts are `control-{region}` in it.
    managed_identity_domain: Option<String>,
    /// The suffix of container registries.
    registry_suffix: Option<&'static str>,
    /// The domain of the token issuers of managed clusters, whose hosts are `{region}` in it.
    oidc_issuer_domain: Option<&'static str>,
}

/// The older host of Microsoft Graph in the public cloud.
const AZURE_AD_GRAPH: &str = "graph.windows.net";
/// The suffix of regional token services.
const REGIONAL_LOGIN: &str = "login.microsoft.com";
/// The domain of the data plane of managed identities.
pub const MANAGED_IDENTITY_DOMAIN: &str = "identity.azure.net";
/// The domain of the token issuers of managed clusters (AKS).
pub const OIDC_ISSUER_DOMAIN: &str = "oic.prod-aks.azure.com";
/// The audience of every storage account, in every cloud.
const STORAGE_AUDIENCE_HOST: &str = "storage.azure.com";

/// The host of the data plane of managed identities in a region.
pub fn managed_identity_host(region: &str, domain: &str) -> String {
    format!("control-{region}.{domain}")
}

/// A service of Azure as the resource of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AudienceService {
    Graph,
    /// Any other service.
    Other,
}

impl EmulatedCloud {
    /// A cloud of Azure.
    pub(super) fn of_azure(name: Cloud, endpoints: &CloudEndpoints) -> Self {
        let is_public = name == Cloud::Public;
        let aliases = endpoints.authority_aliases.iter().copied();
        let older_graph = is_public.then_some(AZURE_AD_GRAPH);
        let owned = str::to_owned;
        Self {
            name,
            port: HTTPS_PORT,
            authority_hosts: [endpoints.authority_host]
                .into_iter()
                .chain(aliases)
                .map(owned)
                .collect(),
            regional_authority_suffix: is_public.then_some(REGIONAL_LOGIN),
            token_issuer_host: match name {
                Cloud::China => "sts.chinacloudapi.cn",
                Cloud::German => "sts.microsoftonline.de",
                _ => "sts.windows.net",
            },
            arm_host: endpoints.arm_host.to_owned(),
            arm_audience_host: endpoints.arm_audience.trim_start_matches("https://").to_owned(),
            vault_suffix: endpoints.vault_suffix.to_owned(),
            managed_hsm_suffix: endpoints.managed_hsm_suffix.to_owned(),
            graph_hosts: [endpoints.graph_host].into_iter().chain(older_graph).map(owned).collect(),
            storage_suffix: endpoints.storage_suffix.to_owned(),
            managed_identity_domain: is_public.then(|| MANAGED_IDENTITY_DOMAIN.to_owned()),
            registry_suffix: endpoints.registry_suffix,
            oidc_issuer_domain: is_public.then_some(OIDC_ISSUER_DOMAIN),
        }
    }

    /// All clouds of Azure.
    pub(super) fn all_of_azure() -> impl Iterator<Item = Self> {
        Cloud::ALL.into_iter().filter_map(|name| Some(Self::of_azure(name, name.endpoints()?)))
    }

    /// A custom cloud. Like Azure Stack, it uses the directory of the public cloud.
    pub(super) fn custom(domain: &str, port: u16) -> Self {
        let below = |label: &str| format!("{label}.{domain}");
        Self {
            name: Cloud::Stack,
            port,
            authority_hosts: vec![below("login")],
            regional_authority_suffix: None,
            token_issuer_host: "sts.windows.net",
            arm_host: below("management"),
            arm_audience_host: below("management"),
            vault_suffix: below("vault"),
            managed_hsm_suffix: below("managedhsm"),
            graph_hosts: vec![below("graph")],
            // Several clients find the account's name before `.blob.core.`.
            storage_suffix: below("core"),
            managed_identity_domain: Some(below("identity")),
            registry_suffix: None,
            oidc_issuer_domain: None,
        }
    }

    /// The service at a host in lower case; `None` for a host of another cloud.
    pub(super) fn service_at_host(&self, host: &str) -> Option<AzureService> {
        let is_regional =
            self.regional_authority_suffix.is_some_and(|it| is_subdomain_of(host, it));
        if is_regional || self.authority_hosts.iter().any(|known| known == host) {
            Some(AzureService::Entra)
        } else if host == self.arm_host || host == self.arm_audience_host {
            Some(AzureService::Arm)
        } else if is_subdomain_of(host, &self.vault_suffix)
            || is_subdomain_of(host, &self.managed_hsm_suffix)
        {
            Some(AzureService::KeyVault)
        } else if self.is_graph(host) {
            Some(AzureService::Graph)
        } else if self.is_managed_identity_host(host) {
            Some(AzureService::ManagedIdentity)
        } else if self.oidc_issuer_domain.is_some_and(|domain| is_subdomain_of(host, domain)) {
            Some(AzureService::OidcIssuer)
        } else {
            self.storage_service(host)
        }
    }

    fn is_graph(&self, host: &str) -> bool {
        self.graph_hosts.iter().any(|known| known == host)
    }

    /// Whether a host is the data plane of managed identities in a region.
    fn is_managed_identity_host(&self, host: &str) -> bool {
        let domain = self.managed_identity_domain.as_deref();
        let label = domain.and_then(|domain| host.strip_suffix(domain)?.strip_suffix('.'));
        let region = label.and_then(|label| label.strip_prefix("control-"));
        region.is_some_and(|region| !region.is_empty() && !region.contains('.'))
    }

    /// `https://`, a host of this cloud, and the port unless it is 443.
    pub fn origin(&self, host: &str) -> String {
        https_origin(host, self.port)
    }

    /// Adds the port to a host or a suffix, unless it is 443.
    fn with_port(&self, host: &str) -> String {
        self.origin(host).trim_start_matches("https://").to_owned()
    }

    /// The audiences at a host, without a trailing slash: with the port, and without it.
    fn audiences_at(&self, host: &str) -> [String; 2] {
        [self.origin(host), https_origin(host, HTTPS_PORT)]
    }

    /// The Azure service with the audience `identifier`, with or without one trailing slash; `None`
    /// if no service of this cloud has it.
    pub fn service_of_audience(&self, identifier: &str) -> Option<AudienceService> {
        let name = identifier.strip_suffix('/').unwrap_or(identifier);
        let authority = name.strip_prefix("https://")?;
        let host = authority
            .strip_suffix(&self.port.to_string())
            .and_then(|head| head.strip_suffix(':'))
            .filter(|_| self.port != HTTPS_PORT)
            .unwrap_or(authority);
        if self.is_graph(host) {
            return Some(AudienceService::Graph);
        }
        let is_known = host == self.arm_host
            || host == self.arm_audience_host
            || host == self.vault_suffix
            || host == self.managed_hsm_suffix
            || host == STORAGE_AUDIENCE_HOST
            || self.managed_identity_domain.as_deref() == Some(host)
            || self.storage_service(host) == Some(AzureService::Blob);
        is_known.then_some(AudienceService::Other)
    }

    // Entra

    /// The preferred host of the token service, with its port.
    pub fn authority(&self) -> String {
        self.with_port(self.authority_hosts.first().map_or("", String::as_str))
    }

    /// The preferred URL of the token service, without a trailing slash.
    pub fn authority_url(&self) -> String {
        format!("https://{}", self.authority())
    }

    /// All hosts of the token service with their port, the preferred one first.
    pub fn authorities(&self) -> Vec<String> {
        self.authority_hosts.iter().map(|host| self.with_port(host)).collect()
    }

    /// The hosts of the global token service, if `host` is a regional one such as
    /// `westeurope.login.microsoft.com`; otherwise empty.
    pub fn global_authority_hosts(&self, host: &str) -> Vec<&str> {
        let suffix = self.regional_authority_suffix.filter(|suffix| is_subdomain_of(host, suffix));
        let preferred = suffix.and_then(|_| self.authority_hosts.first());
        preferred.map(String::as_str).into_iter().chain(suffix).collect()
    }

    /// The issuer of version 1.0 tokens, which both endpoints issue for ARM and the vaults.
    pub fn v1_issuer(&self, tenant: &EntraTenantId) -> String {
        format!("https://{}/{tenant}/", self.token_issuer_host)
    }

    /// The issuer of version 2.0 tokens and of ID tokens.
    pub fn v2_issuer(&self, tenant: &EntraTenantId) -> String {
        format!("{}/{tenant}/v2.0", self.authority_url())
    }

    // Microsoft Graph

    /// The preferred host of Microsoft Graph, with its port.
    pub fn graph_authority(&self) -> String {
        self.with_port(self.graph_host())
    }

    /// The URL of Microsoft Graph, without a trailing slash.
    pub fn graph_url(&self) -> String {
        self.origin(self.graph_host())
    }

    fn graph_host(&self) -> &str {
        self.graph_hosts.first().map_or("", String::as_str)
    }

    /// The URL of the older Azure AD Graph, without a trailing slash. In clouds without Azure AD
    /// Graph, the URL of Microsoft Graph.
    pub fn directory_graph_url(&self) -> String {
        self.origin(self.graph_hosts.last().map_or("", String::as_str))
    }

    /// The audiences of Microsoft Graph.
    pub fn graph_audiences(&self) -> Vec<String> {
        with_trailing_slashes(self.audiences_at(self.graph_host()))
    }

    // Azure Resource Manager

    /// The URL of Azure Resource Manager, without a trailing slash.
    pub fn arm_url(&self) -> String {
        self.origin(&self.arm_host)
    }

    /// The audience of Azure Resource Manager that clients request by default, without a trailing slash.
    pub fn arm_audience(&self) -> String {
        self.origin(&self.arm_audience_host)
    }

    /// The audiences of Azure Resource Manager: its URL and its old name.
    pub fn arm_audiences(&self) -> Vec<String> {
        let hosts = [&self.arm_host, &self.arm_audience_host];
        with_trailing_slashes(hosts.into_iter().flat_map(|host| self.audiences_at(host)))
    }

    // Key Vault

    /// The DNS suffix of vaults, without a port.
    pub fn vault_suffix(&self) -> &str {
        &self.vault_suffix
    }

    /// The suffix of the hosts of vaults, with the port.
    pub fn vault_authority_suffix(&self) -> String {
        self.with_port(&self.vault_suffix)
    }

    /// The suffix of the hosts of managed HSMs, with the port.
    pub fn managed_hsm_authority_suffix(&self) -> String {
        self.with_port(&self.managed_hsm_suffix)
    }

    /// The host of a vault.
    pub fn vault_host(&self, name: &VaultName) -> String {
        self.vault_host_of_text(name.as_str())
    }

    /// The host of a vault whose name may be invalid.
    pub fn vault_host_of_text(&self, name: &str) -> String {
        format!("{name}.{}", self.vault_suffix).to_ascii_lowercase()
    }

    /// The audiences of the vault or the managed HSM at `host`: the `https` URL of the host's
    /// parent domain with the port, as in the challenge, and without it.
    pub fn vault_audiences(&self, host: &str) -> [String; 2] {
        self.audiences_at(host.split_once('.').map_or(host, |(_, suffix)| suffix))
    }

    // Storage

    /// The suffix of storage, with the port.
    pub fn storage_authority_suffix(&self) -> String {
        self.with_port(&self.storage_suffix)
    }

    /// The host of the Blob service of an account.
    pub fn blob_host(&self, account: &str) -> String {
        format!("{account}.blob.{}", self.storage_suffix).to_ascii_lowercase()
    }

    /// The audiences of an account by the host of its Blob service.
    pub fn blob_audiences(&self, host: &str) -> Vec<String> {
        let every_account = https_origin(STORAGE_AUDIENCE_HOST, HTTPS_PORT);
        with_trailing_slashes([every_account].into_iter().chain(self.audiences_at(host)))
    }

    // Other services

    /// The URL of the data plane of managed identities in a region, without a trailing slash. Clouds without a
    /// domain of their own use that of the public cloud.
    pub fn managed_identity_url(&self, region: &str) -> String {
        let domain = self.managed_identity_domain.as_deref().unwrap_or(MANAGED_IDENTITY_DOMAIN);
        self.origin(&managed_identity_host(region, domain))
    }

    /// The audiences of the data plane of managed identities.
    pub fn managed_identity_audiences(&self) -> Vec<String> {
        let domain = self.managed_identity_domain.as_deref().into_iter();
        with_trailing_slashes(domain.flat_map(|domain| self.audiences_at(domain)))
    }

    /// The DNS suffix of container registries; `None` in a cloud without registries.
    pub const fn registry_suffix(&self) -> Option<&'static str> {
        self.registry_suffix
    }

    /// The DNS names that the local CA may sign, together with their subdomains.
    fn signable_suffixes(&self) -> impl Iterator<Item = &str> {
        let hosts = self.authority_hosts.iter().chain(&self.graph_hosts).map(String::as_str);
        let suffixes = [
            &self.arm_host,
            &self.arm_audience_host,
            &self.vault_suffix,
            &self.managed_hsm_suffix,
            &self.storage_suffix,
        ];
        let suffixes = suffixes.into_iter().map(String::as_str);
        let optional = [
            self.regional_authority_suffix,
            self.managed_identity_domain.as_deref(),
            self.oidc_issuer_domain,
        ];
        hosts.chain(suffixes).chain(optional.into_iter().flatten())
    }

    /// The service of a host of storage accounts: `<account>.blob.<suffix>`, or `<account>.<zone>.web.<suffix>`
    /// for a static website.
    pub(super) fn storage_service(&self, host: &str) -> Option<AzureService> {
        let labels = host.strip_suffix(&*self.storage_suffix)?.strip_suffix('.')?;
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

    /// The DNS names of clouds that the local CA may sign, together with their subdomains.
    pub(super) fn all_signable_suffixes<'c>(clouds: impl Iterator<Item = &'c Self>) -> Vec<String> {
        let of_clouds = clouds.flat_map(Self::signable_suffixes);
        let mut all: Vec<_> =
            of_clouds.chain([identity_binding::SUFFIX]).map(str::to_owned).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The DNS name of Azure that collides with the names of a custom cloud with this domain;
    /// `None` if there is none.
    pub(crate) fn colliding_azure_name(domain: &str) -> Option<String> {
        let custom = Self::custom(domain, HTTPS_PORT);
        let azure: Vec<_> = Self::all_of_azure().collect();
        let collides = |name: &&String| {
            custom
                .signable_suffixes()
                .any(|own| own == *name || is_subdomain_of(own, name) || is_subdomain_of(name, own))
        };
        Self::all_signable_suffixes(azure.iter()).iter().find(collides).cloned()
    }
}

/// The audiences, each with and without a trailing slash.
fn with_trailing_slashes(audiences: impl IntoIterator<Item = String>) -> Vec<String> {
    audiences.into_iter().flat_map(|audience| [format!("{audience}/"), audience]).collect()
}

/// Whether `host` is a subdomain of `suffix`, at any depth.
pub(super) fn is_subdomain_of(host: &str, suffix: &str) -> bool {
    host.strip_suffix(suffix).is_some_and(|head| head.len() > 1 && head.ends_with('.'))
}
