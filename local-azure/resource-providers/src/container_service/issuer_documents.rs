//! The token issuers of managed clusters: anonymous reads of their discovery documents and key sets.
//!
//! The documents are those with which Entra verifies federated tokens.

use http::{Method, StatusCode};
use lanyard_emulator_core::emulated_service::EmulatedService;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_core::operations::{OperationSupport, ServiceOperation};
use lanyard_emulator_core::public_documents::PublicDocuments;
use lanyard_emulator_state::azure_service::AzureService;
use lanyard_emulator_state::request::ServiceReply;

pub(crate) const SERVICE: EmulatedService =
    EmulatedService::new(AzureService::OidcIssuer, &[OPERATIONS]);

const OPERATIONS: &[ServiceOperation] = &[
    ServiceOperation {
        id: "OidcIssuer_GetDiscoveryDocument",
        method: Method::GET,
        path: "/{tenant}/{issuer}/.well-known/openid-configuration",
        support: OperationSupport::Full,
        handler: read_document,
    },
    ServiceOperation {
        id: "OidcIssuer_GetKeySet",
        method: Method::GET,
        path: "/{tenant}/{issuer}/openid/v1/jwks",
        support: OperationSupport::Full,
        handler: read_document,
    },
];

fn read_document(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let url = format!("https://{}{}", call.request.host, call.request.path);
    let documents =
        PublicDocuments { azure: call.azure, clouds: call.clouds, services: call.services };
    let document = documents.read(&url).map_err(|missing| {
        ServiceReply::text(StatusCode::NOT_FOUND, format!("{missing}\n"))
            .with_rejection_reason("issuer not published")
    })?;
    Ok(ServiceReply::json(StatusCode::OK, &document))
}
