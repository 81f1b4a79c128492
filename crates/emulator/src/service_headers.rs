//! The headers that every service adds to its replies: the date, the request ids and the caching rules.

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;

use crate::engine::State;
use crate::operations::AzureService;
use crate::request::{ServiceReply, ServiceRequest};

/// Prints the header `Date` (RFC 9110, 5.6.7).
static DATE_PRINTER: DateTimePrinter = DateTimePrinter::new();

/// Adds the headers that every service sends.
pub(crate) fn add_service_headers(
    mut reply: ServiceReply,
    request: &ServiceRequest,
    service: Option<AzureService>,
    state: &mut State,
    now: Timestamp,
) -> ServiceReply {
    let id = state.ids.next_uuid().to_string();
    let date = DATE_PRINTER.timestamp_to_rfc9110_string(&now).unwrap_or_default();
    reply = reply.with_header("date", date).with_header("x-ms-request-id", &id);
    if let Some(sent) = request.header("x-ms-client-request-id").filter(|id| id.len() <= 128) {
        reply = reply.with_header("x-ms-client-request-id", sent);
    }
    match service {
        Some(AzureService::Arm) => {
            let correlation =
                request.header("x-ms-correlation-request-id").unwrap_or(&id).to_owned();
            let stamp = now.strftime("%Y%m%dT%H%M%SZ");
            reply
                .with_header("x-ms-routing-request-id", format!("LANYARD:{stamp}:{correlation}"))
                .with_header("x-ms-correlation-request-id", correlation)
                .with_header("cache-control", "no-cache")
        }
        Some(AzureService::Entra) => {
            let echoed = request.header("client-request-id").filter(|id| id.len() <= 128);
            if let Some(sent) = echoed {
                reply = reply.with_header("client-request-id", sent);
            }
            reply.with_header("cache-control", "no-store, no-cache")
        }
        Some(AzureService::KeyVault) => {
            let vault = state.azure.vaults.vault_at_host(&request.host);
            let region = vault.map_or("", |vault| vault.location.as_str()).to_owned();
            reply
                .with_header("x-ms-keyvault-region", region)
                .with_header("cache-control", "no-cache")
        }
        Some(AzureService::Blob | AzureService::StaticWebsite) => {
            let version = request.header("x-ms-version").unwrap_or("2009-09-19").to_owned();
            reply.with_header("x-ms-version", version)
        }
        _ => reply,
    }
}
