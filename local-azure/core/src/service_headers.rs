//! The headers that the engine adds to every reply: the date and the request ids, and those that all replies of a
//! service have.

use http::HeaderValue;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use lanyard_emulator_state::azure_service::AzureService;
use lanyard_emulator_state::azure_state::AzureState;
use lanyard_emulator_state::id_generator::IdGenerator;
use lanyard_emulator_state::request::{ServiceReply, ServiceRequest};
use uuid::Uuid;

/// Prints the header `Date` (RFC 9110, 5.6.7).
static DATE_PRINTER: DateTimePrinter = DateTimePrinter::new();

/// The content of the headers, which comes from the state.
#[derive(Debug)]
pub struct ServiceHeaders {
    service: Option<AzureService>,
    request_id: Uuid,
    /// The region of the vault; `None` for other hosts.
    vault_region: Option<HeaderValue>,
    now: Timestamp,
}

impl ServiceHeaders {
    /// Reads the content from the state. The headers are added after the state is unlocked.
    pub fn collect(
        request: &ServiceRequest,
        service: Option<AzureService>,
        azure: &AzureState,
        ids: &mut IdGenerator,
        now: Timestamp,
    ) -> Self {
        let vault = (service == Some(AzureService::KeyVault))
            .then(|| azure.vaults.vault_at_host(&request.host))
            .flatten();
        let vault_region = vault.and_then(|vault| HeaderValue::from_str(&vault.location).ok());
        Self { service, request_id: ids.next_uuid(), vault_region, now }
    }

    /// Adds the headers.
    pub(crate) fn add_to(self, mut reply: ServiceReply, request: &ServiceRequest) -> ServiceReply {
        let mut id = Uuid::encode_buffer();
        let id: &str = self.request_id.hyphenated().encode_lower(&mut id);
        let date = DATE_PRINTER.timestamp_to_rfc9110_string(&self.now).unwrap_or_default();
        reply = reply.with_header("date", date).with_header("x-ms-request-id", id);
        if let Some(sent) = request.header("x-ms-client-request-id").filter(|id| id.len() <= 128) {
            reply = reply.with_header("x-ms-client-request-id", sent);
        }
        match self.service {
            Some(AzureService::Arm) => {
                let correlation = request.header("x-ms-correlation-request-id").unwrap_or(id);
                let stamp = self.now.strftime("%Y%m%dT%H%M%SZ");
                let routing = format!("LANYARD:{stamp}:{correlation}");
                reply
                    .with_header("x-ms-routing-request-id", routing)
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
                if let Some(region) = self.vault_region {
                    reply.headers.insert("x-ms-keyvault-region", region);
                }
                reply.with_header("cache-control", "no-cache")
            }
            Some(AzureService::Blob | AzureService::StaticWebsite) => {
                let version = request.header("x-ms-version").unwrap_or("2009-09-19");
                reply.with_header("x-ms-version", version)
            }
            _ => reply,
        }
    }
}
