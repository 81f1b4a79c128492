//! The clouds that an emulator serves: the host names, URLs and audiences of their services.
//!
//! The clouds of Azure have their public names. A custom cloud has names below a domain, and URLs with a port.

mod emulated_cloud;

use std::sync::Arc;

use lanyard_vocabulary::{Cloud, cloud};
use url::Url;

pub use self::emulated_cloud::{
    AudienceService, EmulatedCloud, MANAGED_IDENTITY_DOMAIN, OIDC_ISSUER_DOMAIN,
    managed_identity_host,
};
use crate::azure_service::AzureService;
use crate::cloud_domain::CloudDomain;
use crate::request::{HTTPS_PORT, https_origin, normalize_path};

/// The service and the cloud of a host name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceEndpoint {
    pub service: AzureService,
    pub cloud: Arc<EmulatedCloud>,
}

/// The clouds of an emulator.
#[derive(Debug, Clone)]
pub struct AzureClouds {
    public: Arc<EmulatedCloud>,
    /// The other clouds of Azure, then the custom cloud if there is one.
    others: Vec<Arc<EmulatedCloud>>,
}

impl AzureClouds {
    /// The clouds of Azure, and the custom cloud of a domain. Its URLs have the port of the listener, unless
    /// the domain names another one.
    pub fn new(custom: Option<&CloudDomain>, listener_port: u16) -> Self {
        let others = EmulatedCloud::all_of_azure().filter(|it| it.name != Cloud::Public);
        let custom = custom.map(|custom| {
            EmulatedCloud::custom(custom.as_str(), custom.port().unwrap_or(listener_port))
        });
        Self {
            public: Arc::new(EmulatedCloud::of_azure(Cloud::Public, &cloud::PUBLIC)),
            others: others.chain(custom).map(Arc::new).collect(),
        }
    }

    /// The public cloud.
    pub const fn public(&self) -> &Arc<EmulatedCloud> {
        &self.public
    }

    /// The custom cloud; `None` if the emulator has none.
    pub fn custom(&self) -> Option<&EmulatedCloud> {
        let custom = self.others.iter().find(|cloud| cloud.name == Cloud::Stack);
        custom.map(AsRef::as_ref)
    }

    /// All clouds, the public one first.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<EmulatedCloud>> {
        std::iter::once(&self.public).chain(&self.others)
    }

    /// The endpoint, in the public cloud, of a service that belongs to no cloud or serves all.
    pub fn public_endpoint(&self, service: AzureService) -> ServiceEndpoint {
        ServiceEndpoint { service, cloud: Arc::clone(&self.public) }
    }

    /// The endpoint of a lower-case host name; `None` for a name that is not Azure's.
    pub fn endpoint_of_host(&self, host: &str) -> Option<ServiceEndpoint> {
        self.iter().find_map(|cloud| {
            let service = cloud.service_at_host(host)?;
            Some(ServiceEndpoint { service, cloud: Arc::clone(cloud) })
        })
    }

    /// The endpoint of an `https` URL; `None` for a host that is not Azure's, or for a port that is
    /// not that of the host's cloud.
    pub fn endpoint_of_url(&self, url: &Url) -> Option<ServiceEndpoint> {
        let host = url.host_str().filter(|_| url.scheme() == "https")?;
        let endpoint = self.endpoint_of_host(host)?;
        (url.port_or_known_default() == Some(endpoint.cloud.port)).then_some(endpoint)
    }

    /// The endpoint of a host and a port that a client connects to; `None` if no cloud has both.
    pub fn endpoint_of_address(&self, host: &str, port: u16) -> Option<ServiceEndpoint> {
        self.endpoint_of_host(host).filter(|endpoint| endpoint.cloud.port == port)
    }

    /// `https://`, the host, and the port of its cloud unless it is 443. A host that no cloud has, such as one
    /// of an earlier custom cloud, has no port.
    pub fn origin(&self, host: &str) -> String {
        match self.endpoint_of_host(host) {
            Some(endpoint) => endpoint.cloud.origin(host),
            None => https_origin(host, HTTPS_PORT),
        }
    }

    /// Adds the port of its cloud to a URL without a port.
    pub fn url_with_port(&self, url: &str) -> String {
        let Some(rest) = url.strip_prefix("https://") else { return url.to_owned() };
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        format!("{}{path}", self.origin(host))
    }

    /// The path of a request in the form of [`crate::request::ServiceRequest::path`].
    pub fn request_path(&self, host: &str, path: &str) -> String {
        if self.is_blob_host(host) { path.to_owned() } else { normalize_path(path) }
    }

    /// Whether a host serves blobs or a static website: double slashes in their paths are
    /// significant.
    fn is_blob_host(&self, host: &str) -> bool {
        self.iter().any(|cloud| {
            let service = cloud.storage_service(host);
            matches!(service, Some(AzureService::Blob | AzureService::StaticWebsite))
        })
    }

    /// The DNS names that the local CA may sign, together with their subdomains.
    pub fn signable_suffixes(&self) -> Vec<String> {
        EmulatedCloud::all_signable_suffixes(self.iter().map(AsRef::as_ref))
    }
}

#[cfg(test)]
mod tests;
