//! The ways in which requests arrive, and the service that each reaches.

use http::StatusCode;
use lanyard_emulator_state::azure_clouds::{AzureClouds, ServiceEndpoint};
use lanyard_emulator_state::azure_service::AzureService;
use lanyard_emulator_state::request::{ServiceReply, ServiceRequest};

/// The address of the metadata service on every Azure virtual machine.
pub const IMDS_HOST: &str = "169.254.169.254";

/// The end of the path of a token request.
const TOKEN_PATH: &str = "/oauth2/v2.0/token";

/// How a request arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ingress {
    /// Directly at the port, from this machine under a loopback name.
    Port,
    /// Directly at the port, from another machine or under another name.
    RemotePort,
    /// Directly at the port, under a name that is not a loopback name: rejected, because it may be a web page
    /// with DNS rebinding.
    ForeignHostName,
    /// At the port as a proxy, in absolute form without TLS.
    Proxy,
    /// At the port with the header `PROXY_TARGET_HEADER`. The host is that of the service.
    ProxyTarget,
    /// In an intercepted TLS connection.
    Tunnel,
    /// In a TLS connection to the server name of a cluster's token proxy. That name replaces the host of the
    /// request.
    TokenProxy,
    /// In an intercepted TLS connection to another server name than the request's host.
    MisdirectedTunnel,
}

/// The header that every operation of the control API requires. A web page cannot send it to another origin.
pub const CONTROL_HEADER: &str = "x-lanyard-control";

/// The header that names the service of a request without TLS. The Key Vault plugin of Kubernetes (version
/// 0.8.0) sends it to its proxy.
pub(crate) const PROXY_TARGET_HEADER: &str = "x-azure-proxy-target";

/// The host and the path at a service of a request with `PROXY_TARGET_HEADER`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyTarget {
    pub host: String,
    pub path: String,
}

impl ProxyTarget {
    /// Parses the path at the port: `/{tenant}/…` of the token service, `/{host}/…` of a vault. Returns `None`
    /// if the header names neither.
    pub fn parse(clouds: &AzureClouds, header: &str, path: &str) -> Option<Self> {
        if header.eq_ignore_ascii_case("AzureActiveDirectory") {
            let host = clouds.public().authority();
            return Some(Self { host, path: path.to_owned() });
        }
        if !header.eq_ignore_ascii_case("KeyVault") {
            return None;
        }
        let (host, path) = path.trim_start_matches('/').split_once('/')?;
        let host = host.to_ascii_lowercase();
        let endpoint = clouds.endpoint_of_host(&host)?;
        (endpoint.service == AzureService::KeyVault)
            .then(|| Self { host, path: format!("/{path}") })
    }
}

/// Determines the service of a request, or the rejection.
pub(crate) fn resolve_endpoint(
    clouds: &AzureClouds,
    request: &ServiceRequest,
    ingress: Ingress,
) -> Result<ServiceEndpoint, ServiceReply> {
    match ingress {
        Ingress::Tunnel | Ingress::ProxyTarget => {
            clouds.endpoint_of_host(&request.host).ok_or_else(|| not_azure_reply(&request.host))
        }
        Ingress::TokenProxy if request.path.to_ascii_lowercase().ends_with(TOKEN_PATH) => {
            Ok(clouds.public_endpoint(AzureService::Entra))
        }
        Ingress::TokenProxy => Err(ServiceReply::text(
            StatusCode::NOT_FOUND,
            "the token proxy of a cluster forwards token requests and nothing else\n",
        )
        .with_rejection_reason("no token request")),
        Ingress::MisdirectedTunnel => Err(ServiceReply::text(
            StatusCode::MISDIRECTED_REQUEST,
            "the host of the request is not the name that the TLS connection was made to\n",
        )
        .with_rejection_reason("misdirected")),
        Ingress::Proxy => resolve_proxied(clouds, &request.host),
        Ingress::Port | Ingress::RemotePort => resolve_port_path(clouds, request, ingress),
        Ingress::ForeignHostName if clouds.endpoint_of_host(&request.host).is_some() => {
            Err(https_only_reply(&request.host))
        }
        Ingress::ForeignHostName => Err(ServiceReply::text(
            StatusCode::FORBIDDEN,
            "this port answers to loopback names only\n",
        )
        .with_rejection_reason("not a loopback name")),
    }
}

/// The rejection of a tunnel to a host that is not Azure's.
pub(crate) fn tunnel_rejection(
    clouds: &AzureClouds,
    host: &str,
    port: u16,
) -> Option<ServiceReply> {
    let is_open = clouds.endpoint_of_address(host, port).is_some();
    (!is_open).then(|| not_azure_reply(host))
}

fn resolve_proxied(clouds: &AzureClouds, host: &str) -> Result<ServiceEndpoint, ServiceReply> {
    if host == IMDS_HOST {
        return Ok(clouds.public_endpoint(AzureService::Imds));
    }
    if clouds.endpoint_of_host(host).is_none() {
        return Err(not_azure_reply(host));
    }
    Err(https_only_reply(host))
}

fn https_only_reply(host: &str) -> ServiceReply {
    let text =
        format!("`{host}` is served over https only: a token must not travel in the clear\n");
    ServiceReply::text(StatusCode::FORBIDDEN, text)
        .with_rejection_reason("plain http for an Azure host")
}

/// The control API returns credentials, so only this machine may use it, under a loopback name; the certificate of the
/// authority is public.
fn resolve_port_path(
    clouds: &AzureClouds,
    request: &ServiceRequest,
    ingress: Ingress,
) -> Result<ServiceEndpoint, ServiceReply> {
    let mut segments = request.path.split('/').skip(1);
    let first = segments.next().unwrap_or_default();
    // `/nodes/{name}` selects the node of the metadata service.
    let service = if first == "nodes" { segments.nth(1).unwrap_or_default() } else { first };
    match service {
        "metadata" => Ok(clouds.public_endpoint(AzureService::Imds)),
        "msi" => Ok(clouds.public_endpoint(AzureService::AppService)),
        // The page of the device code flow, for browsers that do not use the proxy.
        "device" if first == service => Ok(clouds.public_endpoint(AzureService::Entra)),
        // The empty path is the web page.
        "" | "lanyard"
            if first == service
                && (ingress == Ingress::Port || request.path == "/lanyard/v1/ca.pem") =>
        {
            Ok(clouds.public_endpoint(AzureService::Control))
        }
        "" | "lanyard" if first == service => Err(ServiceReply::text(
            StatusCode::FORBIDDEN,
            "the control API answers to this machine only, at 127.0.0.1, [::1] or localhost\n",
        )
        .with_rejection_reason("control API from another machine or under another name")),
        _ => Err(ServiceReply::text(
            StatusCode::NOT_FOUND,
            "This is the port of a local Azure. Use it as an HTTPS proxy, or ask it for \
             `/metadata/identity/oauth2/token`, `/msi/token` or `/lanyard/v1/operations`.\n",
        )
        .with_rejection_reason("nothing at this path of the port")),
    }
}

fn not_azure_reply(host: &str) -> ServiceReply {
    ServiceReply::text(
        StatusCode::FORBIDDEN,
        format!(
            "`{host}` is not an Azure host on port 443, and this proxy lets nothing else through; \
             list other hosts in NO_PROXY\n"
        ),
    )
    .with_rejection_reason("not an Azure host")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_target_is_the_token_service_or_a_vault() {
        let target = |header, path| {
            let target = ProxyTarget::parse(&AzureClouds::new(None, 0), header, path)?;
            Some((target.host, target.path))
        };
        let pair = |host: &str, path: &str| Some((host.to_owned(), path.to_owned()));
        let login = "login.microsoftonline.com";
        let cases = [
            ("AzureActiveDirectory", "/t/oauth2/token", pair(login, "/t/oauth2/token")),
            ("KeyVault", "/KV.vault.azure.net/keys/k", pair("kv.vault.azure.net", "/keys/k")),
            ("keyvault", "//kv.vault.azure.net//keys", pair("kv.vault.azure.net", "//keys")),
            ("KeyVault", "/kv.vault.azure.net", None),
            ("KeyVault", "/management.azure.com/subscriptions", None),
            ("KeyVault", "/example.com/keys/k", None),
            ("Storage", "/kv.vault.azure.net/keys/k", None),
            ("", "/kv.vault.azure.net/keys/k", None),
        ];
        for (header, path, expected) in cases {
            assert_eq!(target(header, path), expected, "{header} {path}");
        }
    }

    #[test]
    fn tunnels_open_only_to_azure_hosts_on_the_port_of_their_cloud() {
        let clouds = AzureClouds::new(Some(&"azure.test".parse().unwrap()), 7750);
        for (host, port) in [("kv.vault.azure.net", 443), ("kv.vault.azure.test", 7750)] {
            assert!(tunnel_rejection(&clouds, host, port).is_none(), "{host}:{port}");
        }
        for (host, port) in [
            ("kv.vault.azure.net", 80),
            ("kv.vault.azure.net", 7750),
            ("kv.vault.azure.test", 443),
            ("example.com", 443),
            (IMDS_HOST, 443),
        ] {
            assert!(tunnel_rejection(&clouds, host, port).is_some(), "{host}:{port}");
        }
    }
}
