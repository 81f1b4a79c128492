//! The ways into the emulator, and which of them lead to a service.

use http::StatusCode;
use lanyard_vocabulary::Cloud;

use crate::hosts::{self, Site};
use crate::operations::Service;
use crate::request::{Reply, Request};

/// The address of the metadata service on every machine of Azure.
pub(crate) const IMDS_HOST: &str = "169.254.169.254";

/// The end of the path of a token request.
const TOKEN_PATH: &str = "/oauth2/v2.0/token";

/// How a request found the emulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    /// The port itself was addressed from this machine.
    Port,
    /// The port itself was addressed from another machine.
    RemotePort,
    /// The port itself was addressed by a name that is not a loopback one: a web page that points
    /// a name of its own here must get nothing.
    ForeignName,
    /// The port was used as a proxy, in absolute form and in the clear.
    Proxy,
    /// Inside an intercepted TLS connection.
    Tunnel,
    /// Inside a TLS connection that was made to the server name of a cluster's token proxy, which
    /// is the host of the request, whatever the request itself says.
    TokenProxy,
    /// Inside an intercepted TLS connection that was made to another name.
    Misdirected,
}

/// Which service a request is for, or the refusal.
pub(crate) fn site(request: &Request, door: Door) -> Result<Site, Reply> {
    match door {
        Door::Tunnel => hosts::site(&request.host).ok_or_else(|| not_azure(&request.host)),
        Door::TokenProxy if request.path.to_ascii_lowercase().ends_with(TOKEN_PATH) => {
            Ok(local(Service::Entra))
        }
        Door::TokenProxy => Err(Reply::text(
            StatusCode::NOT_FOUND,
            "the token proxy of a cluster forwards token requests and nothing else\n",
        )
        .because("no token request")),
        Door::Misdirected => Err(Reply::text(
            StatusCode::MISDIRECTED_REQUEST,
            "the host of the request is not the name that the TLS connection was made to\n",
        )
        .because("misdirected")),
        Door::Proxy => proxied(&request.host),
        Door::Port | Door::RemotePort => at_port(request, door),
        Door::ForeignName => {
            Err(Reply::text(StatusCode::FORBIDDEN, "this port answers to loopback names only\n")
                .because("not a loopback name"))
        }
    }
}

/// The refusal of a tunnel to a host that is not Azure's.
pub(crate) fn tunnel_refusal(host: &str, port: u16) -> Option<Reply> {
    let open = port == 443 && hosts::site(host).is_some();
    (!open).then(|| not_azure(host))
}

const fn local(service: Service) -> Site {
    Site { service, cloud: Cloud::Public }
}

fn proxied(host: &str) -> Result<Site, Reply> {
    if host == IMDS_HOST {
        return Ok(local(Service::Imds));
    }
    if hosts::site(host).is_none() {
        return Err(not_azure(host));
    }
    let text =
        format!("`{host}` is served over https only: a token must not travel in the clear\n");
    Err(Reply::text(StatusCode::FORBIDDEN, text).because("plain http for an Azure host"))
}

/// The control API hands out credentials and is for this machine only; the certificate of the
/// authority is public.
fn at_port(request: &Request, door: Door) -> Result<Site, Reply> {
    match request.path.split('/').nth(1).unwrap_or_default() {
        "metadata" => Ok(local(Service::Imds)),
        "msi" => Ok(local(Service::WebApp)),
        "lanyard" if door == Door::Port || request.path == "/lanyard/v1/ca.pem" => {
            Ok(local(Service::Control))
        }
        "lanyard" => Err(Reply::text(
            StatusCode::FORBIDDEN,
            "the control API answers to this machine only\n",
        )
        .because("control API from another machine")),
        _ => Err(Reply::text(
            StatusCode::NOT_FOUND,
            "This is the port of a local Azure. Use it as an HTTPS proxy, or ask it for \
             `/metadata/identity/oauth2/token`, `/msi/token` or `/lanyard/v1/operations`.\n",
        )
        .because("nothing at this path of the port")),
    }
}

fn not_azure(host: &str) -> Reply {
    Reply::text(
        StatusCode::FORBIDDEN,
        format!(
            "`{host}` is not an Azure host on port 443, and this proxy lets nothing else through; \
             list other hosts in NO_PROXY\n"
        ),
    )
    .because("not an Azure host")
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::testing::{Probe, world};

    #[test]
    fn the_control_api_is_for_this_machine_and_loopback_names_only() {
        let probe = Probe::new(world());
        let header = [("x-lanyard-control", "1")];
        let ask = |door, path: &str| {
            let url = format!("http://10.0.0.1/{path}");
            probe.ask(door, &Method::GET, &url, &header, "").status.as_u16()
        };
        let token = "metadata/identity/oauth2/token";
        let cases = [
            (Door::Port, "lanyard/v1/world", 200),
            (Door::RemotePort, "lanyard/v1/world", 403),
            (Door::RemotePort, "lanyard//v1/guests", 403),
            (Door::RemotePort, "%6canyard/v1/world", 404),
            (Door::RemotePort, "lanyard/v1/ca.pem", 200),
            (Door::RemotePort, token, 400),
            (Door::ForeignName, "lanyard/v1/ca.pem", 403),
            (Door::ForeignName, token, 403),
            (Door::Port, "", 404),
            (Door::Misdirected, "", 421),
        ];
        for (door, path, expected) in cases {
            assert_eq!(ask(door, path), expected, "{door:?} {path}");
        }
        let state = probe.engine.state();
        assert_eq!(state.ledger.since(0).count(), cases.len());
    }

    #[test]
    fn tunnels_lead_to_azure_over_tls_and_nowhere_else() {
        assert!(tunnel_refusal("kv.vault.azure.net", 443).is_none());
        for (host, port) in [("kv.vault.azure.net", 80), ("example.com", 443), (IMDS_HOST, 443)] {
            assert!(tunnel_refusal(host, port).is_some(), "{host}:{port}");
        }
    }
}
